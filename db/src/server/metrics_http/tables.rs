//! Metrics of each table.
//!
//! A table is shown from its creation to its end if its tenant is shown, at most [`METRICS_ROWS_MAX`] tables.

use std::io;
use std::sync::Arc;

use super::tenants::ShownTenants;
use super::text::{Kind, MetricsText};
use crate::limits::METRICS_ROWS_MAX;
use crate::server::control::Control;
use crate::sync::lock;
use crate::tablet::TableEntry;

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
