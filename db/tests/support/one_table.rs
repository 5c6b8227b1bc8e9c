//! A worker's parts of one table, and a session that asks it natively: request by request, without frames.

use std::sync::Arc;

use db::metrics::WorkerMetrics;
use db::ops::WorkerEnvironment;
use db::session::{Route, Session};
use db::tablet::{Parts, TableEntry, Tables};
use db::tenant::account::Account;
use db::worker::native;
use db::worker::prefetch::locate;
use db::worker::replies::{Caller, ReplyPlace, RequestOutcome};
use store::{Config, Core, Store};
use wire::{Request, Status, TenantId};

/// The tenant of the session and of the table.
pub const TENANT: TenantId = TenantId(1);
/// The table.
pub const TABLE: u32 = 77;

/// See the file's head.
pub struct OneTable {
    pub core: Core,
    pub tables: Tables,
    metrics: WorkerMetrics,
    session: Session,
    next_sequence: u64,
    pub now_us: u64,
}

/// Takes the answer, if there is one.
#[derive(Default)]
struct Taken(Option<(Status, Vec<u8>)>);

impl ReplyPlace for Taken {
    fn reply(&mut self, status: Status, body_bytes: usize, fill: impl FnOnce(&mut [u8])) {
        let mut body = vec![0; body_bytes];
        fill(&mut body);
        assert!(self.0.replace((status, body)).is_none(), "a request is answered once");
    }

    fn shows_anything(&self) {}

    fn route(&self) -> Route {
        unreachable!("no invocation is made here, and nothing waits")
    }
}

impl OneTable {
    /// A table in a store of its own.
    pub fn new(parts: impl FnOnce(&Arc<Store>) -> Parts) -> Self {
        let config = Config {
            memory_bytes: 64 << 20,
            segment_bytes: 1 << 20,
            cores: 1,
            huge_pages: false,
            durable: false,
            recovery_cores: 0,
        };
        let store = Store::new(config).expect("a store");
        let account = Arc::new(Account::new(TENANT));
        let mut tables = Tables::default();
        tables.insert(Arc::new(TableEntry {
            id: TABLE,
            tenant: TENANT,
            name: "t".into(),
            writable: true,
            durability: control::Durability::Memory,
            owner: Arc::clone(&account),
            parts: parts(&store),
            map: None,
        }));
        let session = Session::new(7, 1, account, 0);
        let (core, metrics) = (store.core(0), WorkerMetrics::new());
        Self { core, tables, metrics, session, next_sequence: 1, now_us: 1 }
    }

    /// Gives the worker other parts, made of those that it has.
    pub fn set_parts(&mut self, change: impl FnOnce(&Parts) -> Parts) {
        let entry = self.tables.get(TENANT, TABLE).expect("the table");
        let entry = Arc::new(entry.with_parts(change(&entry.parts), None));
        self.tables.insert(entry);
    }

    /// The answer to a request under the next sequence; `None` where it has to wait.
    pub fn ask(&mut self, request: &Request<'_>) -> Option<(Status, Vec<u8>)> {
        self.next_sequence += 1;
        self.ask_as(self.next_sequence - 1, request)
    }

    /// That to a request under a sequence.
    pub fn ask_as(&self, sequence: u64, request: &Request<'_>) -> Option<(Status, Vec<u8>)> {
        let pin = self.core.pin();
        let environment = WorkerEnvironment {
            core: &self.core,
            pin: &pin,
            tables: &self.tables,
            metrics: &self.metrics,
            remote: None,
            now_us: self.now_us,
            wall_ms: 1,
        };
        let located = locate(&environment, &self.session, request);
        let (caller, mut taken) = (Caller { session: &self.session, sequence }, Taken::default());
        let turn = native::execute::<true>(&environment, caller, request, located, &mut taken);
        assert_eq!(turn == RequestOutcome::Lacks, taken.0.is_none());
        taken.0
    }
}
