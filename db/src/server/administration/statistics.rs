//! Counters: for the administrator all of them, for a tenant those of what it has.

use wire::{Body, Statistic};

use crate::metrics::{Counter, total};
use crate::sched::watchdog;
use crate::server::control::{Control, OpenSession, Refusal, lock};
use crate::server::opening::Role;
use crate::tenant::TenantId;

pub(super) fn read(control: &Control, role: &Role) -> Result<Vec<u8>, Refusal> {
    let statistics = match role {
        Role::Administrator => of_server(control),
        Role::Tenant(session) => of_tenant(control, session.tenant),
    };
    Ok(statistics.encode())
}

fn of_tenant(control: &Control, tenant: TenantId) -> Vec<Statistic> {
    let tables = control.tables_of(tenant);
    let own = |open: &&OpenSession| open.session.tenant == tenant;
    vec![
        statistic("tables", tables.len() as u64),
        statistic("objects", tables.iter().map(|entry| entry.table.objects()).sum()),
        statistic("object_bytes", tables.iter().map(|entry| entry.table.bytes()).sum()),
        statistic("index_bytes", tables.iter().map(|entry| entry.table.index_bytes()).sum()),
        statistic("extensions", control.registry.names(tenant).len() as u64),
        statistic("sessions", lock(&control.sessions).values().filter(own).count() as u64),
    ]
}

fn of_server(control: &Control) -> Vec<Statistic> {
    let mut statistics = vec![
        statistic("uptime_ms", control.clock.now_us() / 1000),
        statistic("workers", control.workers.len() as u64),
        statistic("sessions", lock(&control.sessions).len() as u64),
    ];
    let workers = || control.metrics.iter().map(|metrics| &**metrics);
    statistics
        .extend(Counter::ALL.iter().map(|counter| statistic(counter.name(), total(workers(), *counter))));
    let (nudges, stalls) = watchdog::counts();
    statistics.extend([statistic("watchdog_nudges", nudges), statistic("watchdog_stalls", stalls)]);
    let store = control.store.statistics();
    statistics.extend([
        statistic("store_memory_bytes", store.memory_bytes),
        statistic("store_segment_bytes", store.segment_bytes),
        statistic("store_segments", store.segments),
        statistic("store_segments_free", store.segments_free),
        statistic("store_segments_limbo", store.segments_limbo),
        statistic("store_objects", store.objects),
        statistic("store_object_bytes", store.object_bytes),
        statistic("store_index_bytes", store.index_bytes),
        statistic("store_tables", store.tables),
        statistic("store_segments_cleaned", store.segments_cleaned),
        statistic("store_bytes_relocated", store.bytes_relocated),
        statistic("store_oldest_pin_age", store.oldest_pin_age),
    ]);
    statistics
}

fn statistic(name: &str, value: u64) -> Statistic {
    Statistic { name: name.to_owned(), value }
}
