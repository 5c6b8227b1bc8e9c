//! A worker in miniature for tests of compiled extensions: a store, a registry, the invocations of a thread.

use std::path::Path;
use std::sync::Arc;

use builder::Toolchain;
use db::clock::Clock;
use db::extension::Extension;
use db::extension::invocation::{Invocations, LimitOverrides};
use db::extension::registry::{InstallError, Installed, Registry};
use db::metrics::WorkerMetrics;
use db::ops::WorkerEnvironment;
use db::tablet::{Parts, TableEntry, Tables};
use db::tenant::account::{Account, Accounts};
use store::{Condition, Config, Core, Cursor, PageLimits, Pinned, Quota, Store, Table, TableKind};
use wire::{Status, TenantId};

/// The tenant of the tests.
pub const TENANT: TenantId = TenantId(1);
/// Its table.
pub const TABLE: u32 = 1;
/// Its ordered table.
pub const ORDERED: u32 = 2;

/// Makes two tests of each function: with the extensions' machine code, and with their modules.
#[allow(unused_macros, reason = "not every test uses it")]
macro_rules! in_both_forms {
    ($($name:ident,)*) => {
        mod native {
            $(#[test] fn $name() { super::$name(db::extension::allowance::Sandbox::Native); })*
        }
        mod module {
            $(#[test] fn $name() { super::$name(db::extension::allowance::Sandbox::Wasm); })*
        }
    };
}

/// What a worker lends.
pub struct Lent {
    pub core: Core,
    pub tables: Tables,
    pub metrics: WorkerMetrics,
    pub clock: Clock,
}

impl Lent {
    /// What the worker lends for a turn.
    pub fn environment<'w>(&'w self, pin: &'w Pinned<'w>) -> WorkerEnvironment<'w> {
        WorkerEnvironment {
            core: &self.core,
            pin,
            tables: &self.tables,
            metrics: &self.metrics,
            remote: None,
            now_us: self.clock.now_us(),
            wall_ms: 1_700_000_000_000,
        }
    }
}

/// See the file's head.
pub struct Worker {
    pub lent: Lent,
    pub invocations: Invocations<u64>,
    pub table: Arc<Table>,
}

impl Default for Worker {
    fn default() -> Self {
        Self::with_budget(None)
    }
}

impl Worker {
    /// A worker with an empty table, and with these limits for each invocation in place of its tenant's.
    pub fn with_budget(budget: impl Into<Option<LimitOverrides>>) -> Self {
        let invocations =
            budget.into().map_or_else(Invocations::new, Invocations::with_budget).expect("stacks");
        let config = Config {
            memory_bytes: 64 << 20,
            segment_bytes: 4 << 20,
            cores: 1,
            huge_pages: false,
            durable: false,
            recovery_cores: 0,
        };
        let store = Store::new(config).expect("a small store");
        let table = store.table(TABLE);
        let mut tables = Tables::default();
        let ordered = store.table_of_kind(ORDERED, TableKind::Ordered, &Arc::new(Quota::new(1, u64::MAX)));
        for (id, name, table) in [(TABLE, "table", Arc::clone(&table)), (ORDERED, "ordered", ordered)] {
            let entry = TableEntry {
                id,
                tenant: TENANT,
                name: name.into(),
                writable: true,
                durability: control::Durability::Memory,
                owner: Arc::new(Account::new(TENANT)),
                parts: Parts::whole(table),
                map: None,
            };
            tables.insert(Arc::new(entry));
        }
        let lent = Lent { core: store.core(0), tables, metrics: WorkerMetrics::new(), clock: Clock::new() };
        Self { lent, invocations, table }
    }

    /// Writes an object.
    pub fn put(&self, key: &[u8], value: &[u8]) {
        let pin = self.lent.core.pin();
        pin.put(&self.table, store::hash(key), key, value, Condition::Always).expect("a put");
    }

    /// Returns keys and values of all objects of a table, by key.
    #[allow(dead_code, reason = "not every test uses it")]
    pub fn objects(&self, table: u32) -> Vec<(Vec<u8>, Vec<u8>)> {
        let entry = self.lent.tables.get(TENANT, table).expect("one of the tables");
        let (table, mut objects) = (entry.parts.only().expect("a whole table"), Vec::new());
        let mut at = Some(Cursor::START);
        while let Some(from) = at {
            let pin = self.lent.core.pin();
            let limits = PageLimits { objects: 512, bytes: usize::MAX, keys_only: false };
            let mut page = [const { None }; 1024];
            at = pin.enumerate(table, from, limits, &mut page).expect("nobody drops the table").next;
            let found = page.iter().flatten().filter_map(|listed| listed.object.as_ref());
            objects.extend(found.map(|object| (object.key().to_vec(), object.value().to_vec())));
        }
        objects.sort();
        objects
    }

    /// Runs one invocation to its end and hands status and body to `on_done`.
    #[allow(dead_code, reason = "not every test uses it")]
    pub fn run(
        &mut self,
        extension: &Arc<Extension>,
        function: &str,
        key: &[u8],
        arguments: &[u8],
        on_done: &mut dyn FnMut(Status, &[u8]),
    ) {
        self.run_in(extension, (function, TABLE), key, arguments, on_done);
    }

    /// Like [`Worker::run`] with a table of the caller's.
    pub fn run_in(
        &mut self,
        extension: &Arc<Extension>,
        (function, table): (&str, u32),
        key: &[u8],
        arguments: &[u8],
        on_done: &mut dyn FnMut(Status, &[u8]),
    ) {
        let Self { lent, invocations, .. } = self;
        let index = extension.function(wire::function_hash(function)).expect("a function of this name");
        let pin = lent.core.pin();
        let started = invocations.start(&lent.environment(&pin), extension, index, table, key, arguments, 7);
        assert!(started.is_ok());
        drop(pin);
        while invocations.live() > 0 {
            let pin = lent.core.pin();
            invocations.run(&lent.environment(&pin), &mut |origin, status, body: &[u8]| {
                assert_eq!(origin, 7);
                on_done(status, body);
            });
        }
    }
}

/// A registry that builds in `cache`, with the server's program as the checker.
pub fn registry(cache: &Path) -> Registry {
    let cache = cache.to_owned();
    let checker = Path::new(env!("CARGO_BIN_EXE_splinter-server"));
    let prepare = move || Toolchain::prepare_with_checker(&cache, checker);
    Registry::open_with(Box::new(prepare), Accounts::default()).expect("a registry")
}

/// The files of an extension of one source file.
#[allow(dead_code, reason = "not every test uses it")]
pub fn package(name: &str, source: &str) -> Vec<(String, Vec<u8>)> {
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [dependencies]\nsandstorm = {{ path = \"../sandstorm\" }}\n"
    );
    vec![
        ("Cargo.toml".to_owned(), manifest.into_bytes()),
        ("src/lib.rs".to_owned(), source.as_bytes().to_vec()),
    ]
}

/// Installs an extension of one source file under a number and a version.
#[allow(dead_code, reason = "not every test uses it")]
pub fn install(
    registry: &Registry,
    name: &str,
    source: &str,
    id: u32,
    version: u32,
) -> Result<Arc<Installed>, InstallError<String>> {
    registry.install(TENANT, name, package(name, source), 0, || Ok((id, version)))
}
