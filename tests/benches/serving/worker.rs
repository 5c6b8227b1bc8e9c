//! A worker's parts, moved by hand: one round of the loop of `db::worker` without a port.

use std::sync::Arc;

use db::extension::invocation::Invocations;
use db::metrics::WorkerMetrics;
use db::ops::WorkerEnvironment;
use db::session::{Origin, Session};
use db::tablet::{Parts, TableEntry};
use db::tenant::account::Account;
use db::view::RoundView;
use db::view::catalog::WorkerCatalog;
use db::view::change::Change;
use db::worker::batch_admission::BatchAdmission;
use db::worker::dispatch::Dispatch;
use db::worker::invocation;
use db::worker::outgoing::Outgoing;
use db::worker::pending_requests::PendingRequests;
use db::worker::ports::Exits;
use db::worker::response_limiter::{ResponseLimiter, ResponseRate};
use net::Batch;
use store::{Core, Pinned, Store};
use wire::TenantId;
use wire::limits::FRAME_BYTES_MAX;

/// The tenant of the table and of the session.
pub const TENANT: TenantId = TenantId(1);
/// The table.
pub const TABLE: u32 = 1;
/// The server's view.
pub const VIEW: u64 = 1;
/// Invocations of one batch that may wait before they are run.
const RUN_AT: usize = 64;

/// See the file's head.
pub struct Worker {
    pub core: Core,
    pub catalog: WorkerCatalog,
    pub metrics: WorkerMetrics,
    outgoing: Outgoing,
    admission: BatchAdmission,
    refusals: ResponseLimiter,
    invocations: Invocations<Origin>,
    pending: PendingRequests,
}

impl Worker {
    /// One that knows a session and these parts of a table, of which clients are told `map`.
    pub fn new(store: &Arc<Store>, token: u64, parts: Parts, map: Option<Arc<[u8]>>) -> Worker {
        let (mut worker, account) = (Worker::idle(store), Arc::new(Account::new(TENANT)));
        worker.add_table(TABLE, &account, parts, map);
        worker.open_session(token, &account);
        worker
    }

    /// Makes a table of a tenant known.
    pub fn add_table(&mut self, id: u32, owner: &Arc<Account>, parts: Parts, map: Option<Arc<[u8]>>) {
        let (name, tenant, owner) = ("t".into(), owner.tenant, Arc::clone(owner));
        let entry = TableEntry {
            id,
            tenant,
            name,
            writable: true,
            durability: control::Durability::Memory,
            owner,
            parts,
            map,
        };
        self.catalog.apply(Change::TableCreated(Arc::new(entry)));
    }

    /// Opens a session of a tenant.
    pub fn open_session(&mut self, token: u64, account: &Arc<Account>) {
        self.catalog.apply(Change::SessionOpened(Arc::new(Session::new(
            token,
            token,
            Arc::clone(account),
            0,
        ))));
    }

    /// One that knows nobody.
    pub fn idle(store: &Arc<Store>) -> Worker {
        Worker {
            core: store.core(0),
            catalog: WorkerCatalog::default(),
            metrics: WorkerMetrics::new(),
            outgoing: Outgoing::new(FRAME_BYTES_MAX, VIEW),
            admission: BatchAdmission::new(0),
            refusals: ResponseLimiter::new(ResponseRate { burst: 1, per_second: 1 }),
            invocations: Invocations::new().expect("stacks"),
            pending: PendingRequests::default(),
        }
    }

    /// Serves a batch; what it answers leaves by `exits`.
    #[inline(never)]
    pub fn serve(&mut self, batch: &Batch, exits: &mut impl Exits) {
        let pin = self.core.pin();
        let environment = lend(&self.core, &pin, &self.catalog, &self.metrics);
        let mut dispatch = Dispatch {
            environment,
            catalog: &self.catalog,
            port: exits,
            arrived_at: 0,
            outgoing: &mut self.outgoing,
            admission: &mut self.admission,
            refusals: &mut self.refusals,
            invocations: &mut self.invocations,
            pending: &mut self.pending,
            view: RoundView::settled(VIEW),
            run_at: RUN_AT,
        };
        dispatch.batch(batch);
        let environment = lend(&self.core, &pin, &self.catalog, &self.metrics);
        while self.invocations.live() > 0 {
            invocation::run(&environment, &mut self.invocations, exits, &mut self.outgoing);
        }
        self.outgoing.send(exits, &self.metrics).expect("exits do not break");
        drop(pin);
        self.core.step();
    }
}

/// What operations work with.
pub fn lend<'w>(
    core: &'w Core,
    pin: &'w Pinned<'w>,
    catalog: &'w WorkerCatalog,
    metrics: &'w WorkerMetrics,
) -> WorkerEnvironment<'w> {
    let tables = &catalog.tables;
    WorkerEnvironment { core, pin, tables, metrics, remote: None, now_us: 1, wall_ms: 1 }
}
