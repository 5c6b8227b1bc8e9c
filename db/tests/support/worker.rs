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
use store::{Condition, Config, Core, Pinned, Store, Table};
use wire::{Status, TenantId};

/// The tenant of the tests.
pub const TENANT: TenantId = TenantId(1);
/// Its table.
pub const TABLE: u32 = 1;

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
        let config = Config { memory_bytes: 64 << 20, segment_bytes: 4 << 20, cores: 1, huge_pages: false };
        let store = Store::new(config).expect("a small store");
        let table = store.table(TABLE);
        let mut tables = Tables::default();
        let entry = TableEntry {
            id: TABLE,
            tenant: TENANT,
            name: "table".into(),
            writable: true,
            owner: Arc::new(Account::new(TENANT)),
            parts: Parts::whole(Arc::clone(&table)),
            map: None,
        };
        tables.insert(Arc::new(entry));
        let lent = Lent { core: store.core(0), tables, metrics: WorkerMetrics::new(), clock: Clock::new() };
        Self { lent, invocations, table }
    }

    /// Writes an object.
    pub fn put(&self, key: &[u8], value: &[u8]) {
        let pin = self.lent.core.pin();
        pin.put(&self.table, store::hash(key), key, value, Condition::Always).expect("a put");
    }

    /// Runs one invocation to its end and hands status and body to `on_done`.
    pub fn run(
        &mut self,
        extension: &Arc<Extension>,
        function: &str,
        key: &[u8],
        arguments: &[u8],
        on_done: &mut dyn FnMut(Status, &[u8]),
    ) {
        let Self { lent, invocations, .. } = self;
        let index = extension.function(wire::function_hash(function)).expect("a function of this name");
        let pin = lent.core.pin();
        let started = invocations.start(&lent.environment(&pin), extension, index, TABLE, key, arguments, 7);
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
pub fn install(
    registry: &Registry,
    name: &str,
    source: &str,
    id: u32,
    version: u32,
) -> Result<Arc<Installed>, InstallError<String>> {
    registry.install(TENANT, name, package(name, source), 0, || Ok((id, version)))
}
