//! Counters: all of them for the administrator, its own for a tenant.

mod store;

use std::sync::atomic::Ordering;

use cluster::metadata::Side;
use control::Statistic;
use guest::{cycles, watchdog};
use wire::{Status, TenantId};

use super::Role;
use crate::control_plane::listener_status::{LINK_COUNTERS, LINKS, ListenerStatus};
use crate::control_plane::migrations::{Figure, Migrations};
use crate::control_plane::{Control, OpenSession, Refusal};
use crate::metrics::{Counter, total};
use crate::sync::lock;
use crate::tenant::ledger::{self, Entry};
use crate::tenant::limit::{TenantLimit, UNLIMITED};

pub(super) fn read(control: &Control, role: &Role, of: Option<&str>) -> Result<Vec<u8>, Refusal> {
    let statistics = match (role, of) {
        (Role::Administrator, None) => of_server(control),
        (Role::Administrator, Some(name)) => of_tenant(control, control.tenant_number(name)?),
        (Role::Tenant(session), None) => of_tenant(control, session.tenant),
        (Role::Tenant(session), Some(name)) => {
            let own = control.metadata.tenant_find(name)?.is_some_and(|row| row.id == session.tenant);
            if !own {
                return Err(Refusal::new(Status::NotPermitted, "a tenant can read only its own counters"));
            }
            of_tenant(control, session.tenant)
        }
    };
    Ok(control::encode(&statistics))
}

fn of_tenant(control: &Control, tenant: TenantId) -> Vec<Statistic> {
    let tables = control.tables_of(tenant);
    let own = |open: &&OpenSession| open.session.tenant == tenant;
    let mut statistics = vec![
        statistic("tables", tables.len() as u64),
        statistic("objects", tables.iter().map(|entry| entry.parts.objects()).sum()),
        statistic("object_bytes", tables.iter().map(|entry| entry.parts.bytes()).sum()),
        statistic("index_bytes", tables.iter().map(|entry| entry.parts.index_bytes()).sum()),
        statistic("extensions", control.registry.names(tenant).len() as u64),
        statistic("sessions", lock(&control.sessions).values().filter(own).count() as u64),
    ];
    let account = control.accounts.of(tenant);
    statistics.push(statistic("home_core", account.home_core().into()));
    let shared = TenantLimit::SHARED.into_iter().filter(|limit| account.whole(*limit) != UNLIMITED);
    statistics
        .extend(shared.map(|limit| statistic(&format!("{}_share", limit.name()), account.limit(limit))));
    let sums = account.ledger.sums();
    statistics.extend(Entry::ALL.iter().map(|entry| match entry {
        Entry::InvocationCycles => statistic("invocation_us", cycles::to_us(sums.of(*entry))),
        entry => statistic(entry.name(), sums.of(*entry)),
    }));
    let answers = sums.answers();
    statistics.extend(
        answers.map(|(status, count)| statistic(&format!("answers_{}", ledger::status_name(status)), count)),
    );
    statistics
}

fn of_server(control: &Control) -> Vec<Statistic> {
    let mut statistics = vec![
        statistic("uptime_ms", control.clock.now_us() / 1000),
        statistic("workers", control.workers.len() as u64),
        statistic("sessions", lock(&control.sessions).len() as u64),
        statistic(&format!("steering_{}", control.ports.steering), control.workers.len() as u64),
    ];
    let workers = || control.metrics.iter().map(|metrics| &**metrics);
    statistics
        .extend(Counter::ALL.iter().map(|counter| statistic(counter.name(), total(workers(), *counter))));
    let (nudges, stalls) = watchdog::counts();
    statistics.extend([statistic("watchdog_nudges", nudges), statistic("watchdog_stalls", stalls)]);
    statistics.extend(control.shm_listener.iter().flat_map(of_links));
    statistics.extend(store::of(control));
    let of_log = control.log.iter().flat_map(|log| log.figures.list(&control.store));
    statistics.extend(of_log.map(|figure| statistic(figure.name, figure.value)));
    statistics.extend(control.migrations.iter().flat_map(of_migrations));
    if control.metadata.records().is_shared() {
        statistics.push(statistic("metadata_copied", control.metadata_copied.load(Ordering::Relaxed)));
    }
    statistics
}

/// Returns the statistics of shared-memory channels.
fn of_links(status: &ListenerStatus) -> impl Iterator<Item = Statistic> {
    let figures = [LINKS].into_iter().chain(LINK_COUNTERS);
    let of_cores = figures.map(|figure| statistic(figure.name, status.of_cores(&figure).sum()));
    of_cores.chain([statistic("shm_links_refused", status.refused())])
}

/// Returns the totals of migrations.
fn of_migrations(migrations: &Migrations) -> [Statistic; 4] {
    let (source, target) = (migrations.totals(Side::Source), migrations.totals(Side::Target));
    [
        statistic("migration_bytes_sent", source.get(Figure::Bytes)),
        statistic("migration_second_reads", source.get(Figure::SecondReads)),
        statistic("migration_second_read_bytes", source.get(Figure::SecondReadBytes)),
        statistic("migration_progress_bytes", target.get(Figure::SecondReadBytes)),
    ]
}

fn statistic(name: &str, value: u64) -> Statistic {
    Statistic { name: name.to_owned(), value }
}
