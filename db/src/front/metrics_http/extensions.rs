//! Metrics of each version of an extension.
//!
//! A version is shown from its first call until it is removed, at most [`METRICS_ROWS_MAX`] of them. Invocations by
//! tenants with a grant count with the owner's.

use std::io;

use guest::cycles;

use super::tenants::ShownTenants;
use super::text::{Kind, MetricsText};
use crate::control_plane::Control;
use crate::extension::version_metrics::{ENDS, MeasuredSummary, Spent};
use crate::limits::METRICS_ROWS_MAX;

/// The quantiles shown, as labels and in thousandths.
const QUANTILES: [(&str, u64); 3] = [("0.5", 500), ("0.99", 990), ("0.999", 999)];

/// The versions that are shown.
pub(super) struct Versions {
    rows: Vec<ShownVersion>,
    /// Number of versions that are not shown.
    pub(super) left_out: u64,
}

/// One version.
struct ShownVersion {
    tenant: String,
    extension: String,
    version: String,
    ends: [u64; ENDS.len()],
    pushed_back: u64,
    spent: Spent,
    cpu_ns: u64,
    timed: u64,
    timed_ns: u64,
    quantiles_ns: [u64; QUANTILES.len()],
}

impl Versions {
    /// Reads the counters of all versions.
    pub(super) fn of(control: &Control, tenants: &ShownTenants) -> Self {
        let mut versions = Self { rows: Vec::new(), left_out: 0 };
        for (tenant, name, version, metrics) in control.registry.metrics() {
            let summary = metrics.summary();
            if summary.calls() == 0 {
                continue;
            }
            match tenants.name(tenant) {
                Some(tenant) if versions.rows.len() < METRICS_ROWS_MAX => {
                    versions.rows.push(ShownVersion::new(tenant, name, version, &summary));
                }
                _ => versions.left_out += 1,
            }
        }
        versions
    }

    /// Writes the metric families.
    pub(super) fn write<W: FnMut(&[u8]) -> io::Result<()>>(
        &self,
        text: &mut MetricsText<W>,
    ) -> io::Result<()> {
        let help = "Invocations of the version that have ended.";
        text.family("splinter_extension_calls_total", Kind::Counter, help)?;
        for row in &self.rows {
            text.sample(&row.labels(), row.ends.iter().sum())?;
        }
        let help = "Failed invocations of the version, by how they ended.";
        text.family("splinter_extension_errors_total", Kind::Counter, help)?;
        for row in &self.rows {
            let [tenant, extension, version] = row.labels();
            for (end, count) in ENDS.iter().zip(row.ends).skip(1) {
                text.sample(&[tenant, extension, version, ("kind", end)], count)?;
            }
        }
        let help = "Invocations of the version that their clients were to run.";
        text.family("splinter_extension_pushed_back_total", Kind::Counter, help)?;
        for row in &self.rows {
            text.sample(&row.labels(), row.pushed_back)?;
        }
        self.write_spent(text)?;
        let help = "Processor time of all invocations, estimated from sampled ones.";
        text.family("splinter_extension_cpu_seconds_total", Kind::Counter, help)?;
        for row in &self.rows {
            text.seconds(&row.labels(), "", row.cpu_ns)?;
        }
        let help = "Processor time of one invocation, of those sampled since the version was loaded.";
        text.family("splinter_extension_run_seconds", Kind::Summary, help)?;
        for row in &self.rows {
            let [tenant, extension, version] = row.labels();
            for ((quantile, _), ns) in QUANTILES.iter().zip(row.quantiles_ns) {
                text.seconds(&[tenant, extension, version, ("quantile", quantile)], "", ns)?;
            }
            text.seconds(&row.labels(), "_sum", row.timed_ns)?;
            text.part(&row.labels(), "_count", row.timed)?;
        }
        Ok(())
    }

    fn write_spent<W: FnMut(&[u8]) -> io::Result<()>>(&self, text: &mut MetricsText<W>) -> io::Result<()> {
        type Count = (&'static str, &'static str, fn(&Spent) -> u64);
        let counts: [Count; 7] = [
            ("preemptions", "Slices that invocations used up.", |spent| spent.preemptions),
            ("yields", "Times that invocations yielded.", |spent| spent.yields),
            ("conflicts", "Commits retried after a conflict.", |spent| spent.conflicts),
            ("read_objects", "Objects read, including absent ones.", |spent| spent.reads),
            ("read_bytes", "Bytes of keys and values read.", |spent| spent.read_bytes),
            ("written_objects", "Objects written, including attempts of failed invocations.", |spent| {
                spent.writes
            }),
            ("written_bytes", "Key and value bytes written, including attempts.", |spent| spent.write_bytes),
        ];
        for (name, help, count) in counts {
            text.family(&format!("splinter_extension_{name}_total"), Kind::Counter, help)?;
            for row in &self.rows {
                text.sample(&row.labels(), count(&row.spent))?;
            }
        }
        Ok(())
    }
}

impl ShownVersion {
    fn new(tenant: &str, extension: String, version: u32, summary: &MeasuredSummary) -> Self {
        Self {
            tenant: tenant.to_owned(),
            extension,
            version: version.to_string(),
            ends: summary.ends,
            pushed_back: summary.pushed_back,
            spent: summary.spent,
            cpu_ns: cycles::to_ns(summary.cycles_estimated),
            timed: summary.timed,
            timed_ns: summary.timed_ns(),
            quantiles_ns: QUANTILES.map(|(_, permille)| summary.quantile_ns(permille)),
        }
    }

    fn labels(&self) -> [(&str, &str); 3] {
        [("tenant", &self.tenant), ("extension", &self.extension), ("version", &self.version)]
    }
}
