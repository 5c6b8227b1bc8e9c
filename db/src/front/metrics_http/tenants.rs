//! Metrics of each tenant, its holdings and its requests, and of each table.
//!
//! A tenant is shown from its creation to its end, at most [`METRICS_ROWS_MAX`] of them, the oldest first.
//! A table is shown from its creation to its end if its tenant is shown, at most as many.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use guest::cycles;
use wire::TenantId;

use super::text::{Kind, MetricsText};
use crate::control_plane::Control;
use crate::limits::METRICS_ROWS_MAX;
use crate::sync::lock;
use crate::tablet::TableEntry;
use crate::tenant::ledger::{self, Entry, Sums};

/// The tenants that are shown.
pub(super) struct ShownTenants {
    rows: BTreeMap<TenantId, TenantMetricsRow>,
    /// Number of tenants that are not shown.
    pub(super) left_out: u64,
}

/// One tenant.
struct TenantMetricsRow {
    name: String,
    sessions: u64,
    tables: u64,
    objects: u64,
    object_bytes: u64,
    index_bytes: u64,
    sums: Sums,
}

impl ShownTenants {
    /// Copies the tenants' names and counters.
    pub(super) fn of(control: &Control, names: BTreeMap<TenantId, String>) -> Self {
        let left_out = names.len().saturating_sub(METRICS_ROWS_MAX) as u64;
        let mut sessions: HashMap<TenantId, u64> = HashMap::new();
        for open in lock(&control.sessions).values() {
            *sessions.entry(open.session.tenant).or_default() += 1;
        }
        let mut rows: BTreeMap<TenantId, TenantMetricsRow> = names
            .into_iter()
            .take(METRICS_ROWS_MAX)
            .map(|(id, name)| (id, TenantMetricsRow::new(name, sessions.get(&id).copied().unwrap_or(0))))
            .collect();
        let tables: Vec<Arc<TableEntry>> = lock(&control.tables).values().cloned().collect();
        for entry in tables {
            if let Some(row) = rows.get_mut(&entry.tenant) {
                row.add(&entry);
            }
        }
        for account in control.accounts.all() {
            if let Some(row) = rows.get_mut(&account.tenant) {
                row.sums = account.ledger.sums();
            }
        }
        Self { rows, left_out }
    }

    /// Returns the name of a tenant if it is shown.
    pub(super) fn name(&self, tenant: TenantId) -> Option<&str> {
        self.rows.get(&tenant).map(|row| row.name.as_str())
    }

    /// Writes the metric families.
    pub(super) fn write<W: FnMut(&[u8]) -> io::Result<()>>(
        &self,
        text: &mut MetricsText<W>,
    ) -> io::Result<()> {
        type Gauge = (&'static str, &'static str, fn(&TenantMetricsRow) -> u64);
        let gauges: [Gauge; 5] = [
            ("sessions", "Open sessions of the tenant.", |row| row.sessions),
            ("tables", "Tables of the tenant.", |row| row.tables),
            ("objects", "Objects in the tenant's tables.", |row| row.objects),
            ("object_bytes", "Bytes of the objects in the tenant's tables.", |row| row.object_bytes),
            ("index_bytes", "Bytes of the indexes of the tenant's tables.", |row| row.index_bytes),
        ];
        for (name, help, value) in gauges {
            text.family(&format!("splinter_tenant_{name}"), Kind::Gauge, help)?;
            for row in self.rows.values() {
                text.sample(&[("tenant", &row.name)], value(row))?;
            }
        }
        self.write_ledgers(text)
    }

    fn write_ledgers<W: FnMut(&[u8]) -> io::Result<()>>(&self, text: &mut MetricsText<W>) -> io::Result<()> {
        for entry in Entry::ALL {
            text.family(&family(*entry), Kind::Counter, entry.text())?;
            for row in self.rows.values() {
                let (labels, value) = ([("tenant", row.name.as_str())], row.sums.of(*entry));
                match entry {
                    Entry::InvocationCycles => text.seconds(&labels, "", cycles::to_ns(value))?,
                    _ => text.sample(&labels, value)?,
                }
            }
        }
        let help = "Answers to the tenant's requests, by status.";
        text.family("splinter_tenant_answers_total", Kind::Counter, help)?;
        for row in self.rows.values() {
            for (status, count) in row.sums.answers() {
                let status = ledger::status_name(status);
                text.sample(&[("tenant", &row.name), ("status", &status)], count)?;
            }
        }
        Ok(())
    }
}

impl TenantMetricsRow {
    fn new(name: String, sessions: u64) -> Self {
        let sums = Sums::default();
        Self { name, sessions, tables: 0, objects: 0, object_bytes: 0, index_bytes: 0, sums }
    }

    fn add(&mut self, entry: &TableEntry) {
        self.tables += 1;
        self.objects += entry.parts.objects();
        self.object_bytes += entry.parts.bytes();
        self.index_bytes += entry.parts.index_bytes();
    }
}

/// Returns the name of the metric, with its unit as Prometheus prefers it.
fn family(entry: Entry) -> String {
    let name = match entry {
        Entry::BytesReceived => "received_bytes",
        Entry::BytesSent => "sent_bytes",
        Entry::InvocationCycles => "invocation_seconds",
        entry => entry.name(),
    };
    format!("splinter_tenant_{name}_total")
}

/// The tables that are shown, each with the name of its tenant.
pub(super) struct ShownTables {
    rows: Vec<(String, Arc<TableEntry>)>,
    /// Number of tables that are not shown.
    pub(super) left_out: u64,
}

impl ShownTables {
    /// Copies the list of tables.
    pub(super) fn of(control: &Control, tenants: &ShownTenants) -> Self {
        let entries: Vec<Arc<TableEntry>> = lock(&control.tables).values().cloned().collect();
        let count = entries.len();
        let named = |entry: Arc<TableEntry>| Some((tenants.name(entry.tenant)?.to_owned(), entry));
        let mut rows: Vec<_> = entries.into_iter().filter_map(named).collect();
        rows.sort_by(|one, other| (&one.0, &one.1.name).cmp(&(&other.0, &other.1.name)));
        rows.truncate(METRICS_ROWS_MAX);
        let left_out = (count - rows.len()) as u64;
        Self { rows, left_out }
    }

    /// Writes the metric families.
    pub(super) fn write<W: FnMut(&[u8]) -> io::Result<()>>(
        &self,
        text: &mut MetricsText<W>,
    ) -> io::Result<()> {
        type Gauge = (&'static str, &'static str, fn(&store::Table) -> u64);
        let gauges: [Gauge; 4] = [
            ("objects", "Objects of the table.", |table| table.objects()),
            ("object_bytes", "Bytes of the table's objects.", |table| table.bytes()),
            ("index_bytes", "Bytes of the table's index.", |table| table.index_bytes()),
            ("expiring_objects", "Objects of the table that expire.", |table| table.expiring()),
        ];
        for (name, help, value) in gauges {
            text.family(&format!("splinter_table_{name}"), Kind::Gauge, help)?;
            for (tenant, entry) in &self.rows {
                text.sample(&[("tenant", tenant), ("table", &entry.name)], entry.parts.sum(value))?;
            }
        }
        text.family(
            "splinter_table_objects_evicted_total",
            Kind::Counter,
            "Objects that the table has evicted.",
        )?;
        for (tenant, entry) in &self.rows {
            text.sample(
                &[("tenant", tenant), ("table", &entry.name)],
                entry.parts.sum(store::Table::evicted),
            )?;
        }
        Ok(())
    }
}
