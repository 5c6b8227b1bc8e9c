//! Where attacks happen: a worker, an attacker that is whatever module a test brings, and a victim beside it.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use builder::{Function, Mode, Toolchain};
use db::extension::allowance::Sandbox;
use db::extension::invocation::LimitOverrides;
use db::extension::log::ExtensionLog;
use db::extension::native::Library;
use db::extension::registry::Registry;
use db::extension::{Extension, Provenance};
use db::tablet::{Parts, TableEntry};
use db::tenant::account::Account;
use store::{Condition, Table};
use wire::{Status, TenantId};

use crate::worker::{self, ORDERED, TABLE, TENANT, Worker};

/// A module that reads, writes, fills and searches its memory as its arguments say.
pub const TOOLS: &str = include_str!("../modules/tools.wat");
/// The names of its functions.
pub const TOOL_NAMES: [&str; 10] = [
    "peek",
    "peek_far",
    "peek_wide",
    "poke",
    "poke_word",
    "poke_far",
    "fill",
    "seek_read",
    "globals_read",
    "claim",
];

/// The other tenant.
pub const VICTIM: TenantId = TenantId(2);
/// Its table.
const SECRETS: u32 = 7;
/// What it stores.
const SECRET: &[u8] = b"a secret of another tenant";
/// What no attack may take longer than.
const PATIENCE: Duration = Duration::from_secs(60);

const VICTIM_SOURCE: &str = r#"
#![no_std]
extern crate alloc;
use alloc::vec::Vec;
use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! { write check }

const WORDS: &[u64; 64] = &[0x5afe_c0de_5afe_c0de; 64];

/// Reads its object, looks at memory that must be as it left it or zero, counts, and says it all.
async fn check(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let table = args.table();
    let sum = WORDS.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
    let held: Vec<u8> = args.bytes().iter().map(|byte| byte.wrapping_add(1)).collect();
    let secret = db.get(table, b"secret").await?.ok_or(Error::NotFound)?;
    let count = db.increment(table, b"count", 1).await?;
    reply.u64(sum)?;
    reply.u64(count as u64)?;
    reply.write(secret)?;
    reply.write(&held)
}
"#;

/// How often each attack runs.
pub fn rounds() -> u32 {
    if std::env::var("SPLINTER_FULL").is_ok_and(|value| value == "1") { 1_000 } else { 20 }
}

/// The toolchain of all tests here.
pub fn toolchain() -> &'static Toolchain {
    static TOOLCHAIN: OnceLock<Toolchain> = OnceLock::new();
    TOOLCHAIN.get_or_init(|| {
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("second_wall");
        let checker = Path::new(env!("CARGO_BIN_EXE_splinter-server"));
        Toolchain::prepare_with_checker(&cache, checker).expect("the tools of builds")
    })
}

/// A registry over the same folder.
pub fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(|| worker::registry(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("second_wall")))
}

/// The names of a module's functions; those that end in `_read` only read.
fn functions(names: &[&str]) -> Vec<Function> {
    let mode = |name: &str| if name.ends_with("_read") { Mode::Read } else { Mode::Write };
    names.iter().map(|name| Function { name: (*name).into(), mode: mode(name), doc: String::new() }).collect()
}

fn load(code: &[u8], names: &[&str], provenance: Provenance) -> Arc<Library> {
    // The first installation starts the engine.
    victim();
    // SAFETY: the builder compiled it just now, after its check of modules.
    let library = unsafe { Library::of_module(&functions(names), code, provenance) };
    Arc::new(library.unwrap_or_else(|error| panic!("{error}")))
}

/// Loads a module that was written by hand.
pub fn module(text: &str, names: &[&str], provenance: Provenance) -> Arc<Library> {
    let module = wat::parse_str(text).unwrap_or_else(|error| panic!("{error}"));
    let code = toolchain().compile_module(&module, names).unwrap_or_else(|error| panic!("{error}"));
    load(&code, names, provenance)
}

/// Loads the module of a source that no check has seen.
pub fn unchecked(source: &str, names: &[&str], provenance: Provenance) -> Arc<Library> {
    let code = toolchain().compile_unchecked(source, names).unwrap_or_else(|error| panic!("{error}"));
    load(&code, names, provenance)
}

/// Makes a version of an extension of a library for a tenant.
pub fn extension(library: &Arc<Library>, tenant: TenantId, version: u32) -> Arc<Extension> {
    let (account, log) = (Arc::new(Account::new(tenant)), Arc::new(ExtensionLog::new()));
    Arc::new(Extension::new(1, account, "attack", version, Arc::clone(library), log))
}

/// Makes the extension of the tests' first tenant.
pub fn attacker(library: &Arc<Library>) -> Arc<Extension> {
    extension(library, TENANT, 1)
}

fn victim() -> Arc<Extension> {
    static INSTALLED: OnceLock<Arc<Extension>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        let files = worker::package("victim", VICTIM_SOURCE);
        let installed = registry().install(VICTIM, "victim", files, 0, || Ok::<_, String>((2, 1)));
        Arc::clone(&installed.unwrap_or_else(|error| panic!("{error}")).extension)
    });
    assert_eq!(installed.provenance(), Provenance::CheckedSource);
    Arc::clone(installed)
}

/// Arguments of eight bytes each.
pub fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The worker, the victim, and what is known of it.
pub struct Stage {
    pub worker: Worker,
    victim: Arc<Extension>,
    secrets: Arc<Table>,
    checks: u64,
    /// How long the victim's invocations took beside attacks, in ns.
    taken_ns: Vec<u64>,
}

impl Stage {
    /// A stage with the limits of a server, and time enough for a busy machine.
    pub fn new() -> Self {
        Self::with_budget(LimitOverrides { cpu_us: 10_000_000, wall_us: 60_000_000, ..Default::default() })
    }

    /// A stage with these limits.
    pub fn with_budget(budget: LimitOverrides) -> Self {
        let mut worker = Worker::with_budget(LimitOverrides { sandbox: Some(Sandbox::Wasm), ..budget });
        let secrets = worker.lent.core.store().table(SECRETS);
        let entry = TableEntry {
            id: SECRETS,
            tenant: VICTIM,
            name: "secrets".into(),
            writable: true,
            durability: control::Durability::Memory,
            owner: Arc::new(Account::new(VICTIM)),
            parts: Parts::whole(Arc::clone(&secrets)),
            map: None,
        };
        worker.lent.tables.insert(Arc::new(entry));
        let pin = worker.lent.core.pin();
        pin.put(&secrets, store::hash(b"secret"), b"secret", SECRET, Condition::Always).expect("a put");
        drop(pin);
        Self { worker, victim: victim(), secrets, checks: 0, taken_ns: Vec::new() }
    }

    /// Runs an attack to its end, the victim beside it; returns status and body of the attacker's reply.
    pub fn attack(
        &mut self,
        attacker: &Arc<Extension>,
        function: &str,
        arguments: &[u8],
    ) -> (Status, Vec<u8>) {
        let mut answers = self.attack_all(&[(attacker, function, arguments)]);
        answers.pop().expect("one answer")
    }

    /// Runs attacks side by side, and a victim among them; returns status and body of each.
    pub fn attack_all(&mut self, attacks: &[(&Arc<Extension>, &str, &[u8])]) -> Vec<(Status, Vec<u8>)> {
        let said = self.checks.to_le_bytes();
        let mut answers: Vec<_> = attacks.iter().map(|_| None).collect();
        let (mut checked, began) = (None, Instant::now());
        let Self { worker: Worker { lent, invocations, .. }, victim, .. } = self;
        let pin = lent.core.pin();
        for (index, (attacker, function, arguments)) in attacks.iter().enumerate() {
            let number = attacker.function(wire::function_hash(function)).expect("a function of this name");
            let started = invocations.start(
                &lent.environment(&pin),
                attacker,
                number,
                TABLE,
                b"key",
                arguments,
                index as u64,
            );
            assert!(started.is_ok());
        }
        let started = invocations.start(&lent.environment(&pin), victim, 0, SECRETS, b"key", &said, u64::MAX);
        assert!(started.is_ok());
        drop(pin);
        while invocations.live() > 0 {
            let pin = lent.core.pin();
            invocations.run(&lent.environment(&pin), &mut |origin, status, body: &[u8]| match origin {
                u64::MAX => checked = Some((status, body.to_vec(), began.elapsed())),
                index => answers[index as usize] = Some((status, body.to_vec())),
            });
            assert!(began.elapsed() < PATIENCE, "no end of {:?}", attacks[0].1);
        }
        while self.worker.lent.core.step() {}
        let (status, body, taken) = checked.expect("the victim is answered");
        self.taken_ns.push(taken.as_nanos() as u64);
        self.compare(&said, status, &body);
        assert_eq!(self.worker.lent.core.held_pins(), 0, "nobody holds what was lent");
        answers.into_iter().map(|answer| answer.expect("each is answered")).collect()
    }

    fn compare(&mut self, said: &[u8], status: Status, body: &[u8]) {
        self.checks += 1;
        let mut expected = words(&[0x5afe_c0de_5afe_c0de_u64.wrapping_mul(64), self.checks]);
        expected.extend_from_slice(SECRET);
        expected.extend(said.iter().map(|byte| byte.wrapping_add(1)));
        assert_eq!((status, body), (Status::Ok, &expected[..]), "the victim");
        let pin = self.worker.lent.core.pin();
        for (key, value) in [(&b"secret"[..], SECRET), (b"count", &self.checks.to_le_bytes())] {
            let found = pin.get(&self.secrets, store::hash(key), key).expect("its objects are there");
            assert_eq!(found.value(), value, "the victim's object");
        }
    }

    /// Writes an object into the attacker's ordered table.
    pub fn put_ordered(&self, key: &[u8], value: &[u8]) {
        let entry = self.worker.lent.tables.get(TENANT, ORDERED).expect("the ordered table");
        let table = entry.parts.only().expect("a whole table");
        let pin = self.worker.lent.core.pin();
        pin.put(table, store::hash(key), key, value, Condition::Always).expect("a put");
    }

    /// All objects of the attacker's tables.
    pub fn objects(&self) -> [Vec<(Vec<u8>, Vec<u8>)>; 2] {
        [TABLE, ORDERED].map(|table| self.worker.objects(table))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.taken_ns.sort_unstable();
        let at = |part: usize| self.taken_ns.get(self.taken_ns.len() * part / 100).map_or(0, |ns| ns / 1_000);
        println!("the victim, {} times: p50 {} us, p99 {} us", self.taken_ns.len(), at(50), at(99));
    }
}
