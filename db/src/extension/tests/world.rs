//! A worker in miniature: a store, two tenants with tables, and the invocations of one thread.

use std::sync::Arc;

use sandstorm::abi::{Call, Code};
use store::{Condition, Config, Core, Pinned, Quota, Store, Table, TableKind};
use wire::{Status, TenantId};

use crate::extension::invocation::{Invocations, LimitOverrides};
use crate::extension::log::ExtensionLog;
use crate::extension::native::{Library, Run};
use crate::extension::{CallMode, Extension, Function};
use crate::metrics::WorkerMetrics;
use crate::ops::WorkerEnvironment;
use crate::ops::remote::RemoteReads;
use crate::tablet::{Parts, TableEntry, Tables};
use crate::tenant::account::Account;

/// The table of the tenant that the functions belong to.
pub(crate) const TABLE: u32 = 1;
/// A second table of the same tenant, called "second".
pub(crate) const SECOND: u32 = 2;
/// A table of somebody else.
pub(crate) const FOREIGN: u32 = 3;

/// An ordered table of the same tenant.
pub(crate) const ORDERED: u32 = 4;

/// Makes a C entry of an async block over `db`, `args` and `reply`, as the builder's glue does.
macro_rules! function {
    ($name:ident, |$db:ident, $args:ident, $reply:ident| $body:block) => {
        unsafe extern "C" fn $name(call: *mut sandstorm::abi::Call) -> sandstorm::abi::Code {
            #[allow(unused_variables)]
            async fn body(
                $db: &sandstorm::Db<'_>,
                $args: sandstorm::Args<'_>,
                $reply: &mut sandstorm::Reply<'_>,
            ) -> Result<(), sandstorm::Error> $body
            // SAFETY: the worker calls this with the call of a running invocation.
            unsafe {
                sandstorm::entry::run(&crate::extension::host::SERVICES, call, |db, args, reply| {
                    body(db, args, reply)
                })
            }
        }
    };
}
pub(crate) use function;

/// Status and body of an answer.
pub(crate) type Answer = (Status, Vec<u8>);

/// The state that a worker lends to invocations.
pub(crate) struct Lent {
    pub(crate) core: Core,
    pub(crate) tables: Tables,
    pub(crate) metrics: WorkerMetrics,
    pub(crate) remote: Option<Arc<RemoteReads>>,
    pub(crate) now_us: u64,
}

impl Lent {
    pub(crate) fn environment<'w>(&'w self, pin: &'w Pinned<'w>) -> WorkerEnvironment<'w> {
        WorkerEnvironment {
            core: &self.core,
            pin,
            tables: &self.tables,
            metrics: &self.metrics,
            remote: self.remote.as_deref(),
            now_us: self.now_us,
            wall_ms: 1_700_000_000_000,
        }
    }
}

/// See the file's head.
pub(crate) struct World {
    pub(crate) lent: Lent,
    pub(crate) invocations: Invocations<u64>,
}

impl World {
    pub(crate) fn new() -> Self {
        let config = Config {
            memory_bytes: 64 << 20,
            segment_bytes: 4 << 20,
            cores: 1,
            huge_pages: false,
            durable: false,
            recovery_cores: 0,
        };
        let store = Store::new(config).expect("a small store");
        let mut tables = Tables::default();
        let (hash, ordered) = (TableKind::Hash, TableKind::Ordered);
        for (id, tenant, name, kind) in [
            (TABLE, 1, "first", hash),
            (SECOND, 1, "second", hash),
            (FOREIGN, 2, "first", hash),
            (ORDERED, 1, "ordered", ordered),
        ] {
            let quota = Arc::new(Quota::new(1, u64::MAX));
            let entry = TableEntry {
                id,
                tenant: TenantId(tenant),
                name: name.into(),
                writable: true,
                durability: control::Durability::Memory,
                owner: Account::native(TenantId(tenant)),
                parts: Parts::whole(store.table_of_kind(id, kind, &quota)),
                map: None,
            };
            tables.insert(Arc::new(entry));
        }
        let metrics = WorkerMetrics::new();
        let lent = Lent { core: store.core(0), tables, metrics, remote: None, now_us: 0 };
        // A slice that no turn uses up, however busy the machine: turns are counted.
        let budget =
            LimitOverrides { slice_us: 3_600_000_000, cpu_us: u64::MAX, ..LimitOverrides::default() };
        Self { lent, invocations: Invocations::with_budget(budget).expect("stacks") }
    }

    /// The extension of one function, of tenant 1.
    pub(crate) fn extension(run: unsafe extern "C" fn(*mut Call) -> Code, mode: CallMode) -> Arc<Extension> {
        let run: Run = run;
        let hash = wire::function_hash("function");
        let functions = vec![Function { name: "function".into(), hash, mode, run: Some(run), export: 0 }];
        let doc = "Does it.\nArguments: a shape".into();
        let described = builder::Function { name: "function".into(), mode: builder::Mode::Write, doc };
        let library = Arc::new(Library::of(functions).documented(&[described]));
        Arc::new(Extension::new(
            9,
            Account::native(TenantId(1)),
            "test",
            1,
            library,
            Arc::new(ExtensionLog::new()),
        ))
    }

    pub(crate) fn table(&self, id: u32) -> Arc<Table> {
        let owner = if id == FOREIGN { 2 } else { 1 };
        let entry = self.lent.tables.get(TenantId(owner), id).expect("one of the tables");
        Arc::clone(&entry.parts.held()[0])
    }

    pub(crate) fn put(&self, table: u32, key: &[u8], value: &[u8]) -> u64 {
        let pin = self.lent.core.pin();
        pin.put(&self.table(table), store::hash(key), key, value, Condition::Always).expect("a put")
    }

    pub(crate) fn delete(&self, table: u32, key: &[u8]) {
        let pin = self.lent.core.pin();
        let deleted = pin.delete(&self.table(table), store::hash(key), key, Condition::Present);
        assert!(deleted.is_ok());
    }

    pub(crate) fn value(&self, table: u32, key: &[u8]) -> Option<Vec<u8>> {
        let pin = self.lent.core.pin();
        pin.get(&self.table(table), store::hash(key), key).map(|object| object.value().to_vec())
    }

    pub(crate) fn start(
        &mut self,
        extension: &Arc<Extension>,
        key: &[u8],
        arguments: &[u8],
        origin: u64,
    ) -> bool {
        let pin = self.lent.core.pin();
        let environment = self.lent.environment(&pin);
        self.invocations.start(&environment, extension, 0, TABLE, key, arguments, origin).is_ok()
    }

    /// One turn of the queue; what ended, by origin.
    pub(crate) fn turn(&mut self) -> Vec<(u64, Answer)> {
        let pin = self.lent.core.pin();
        let environment = self.lent.environment(&pin);
        let mut ended = Vec::new();
        self.invocations.run(&environment, &mut |origin: u64, status: Status, body: &[u8]| {
            ended.push((origin, (status, body.to_vec())));
        });
        ended
    }

    /// Ends what has not ended; the statuses.
    pub(crate) fn end_all(&mut self) -> Vec<Status> {
        let pin = self.lent.core.pin();
        let environment = self.lent.environment(&pin);
        let mut statuses = Vec::new();
        self.invocations.end_all(&environment, &mut |_, status, _: &[u8]| statuses.push(status));
        statuses
    }

    /// Ends those that have not ended and whose origin `ends` picks; their origins and statuses.
    pub(crate) fn end_of_sessions(&mut self, ends: impl Fn(u64) -> bool) -> Vec<(u64, Status)> {
        let pin = self.lent.core.pin();
        let environment = self.lent.environment(&pin);
        let mut ended = Vec::new();
        self.invocations.end_of_sessions(
            &environment,
            |origin| ends(*origin),
            &mut |origin, status, _: &[u8]| {
                ended.push((origin, status));
            },
        );
        ended
    }

    /// Runs one invocation to its end.
    pub(crate) fn call(&mut self, extension: &Arc<Extension>, key: &[u8], arguments: &[u8]) -> Answer {
        assert!(self.start(extension, key, arguments, 7));
        loop {
            if let Some((origin, answer)) = self.turn().pop() {
                assert_eq!(origin, 7);
                return answer;
            }
        }
    }

    /// Runs one function to its end with a key and no arguments.
    pub(crate) fn call_once(
        &mut self,
        run: unsafe extern "C" fn(*mut Call) -> Code,
        mode: CallMode,
        key: &[u8],
    ) -> Answer {
        self.call(&Self::extension(run, mode), key, b"")
    }
}
