//! One program's trial: check, compilers, and both forms with the same invocations on equal tables.
//!
//! What may differ, and is not compared:
//! - runs that reach a limit of memory, stack or time in one form: pointers have 8 bytes in one form and 4 in the other,
//!   and so have frames and allocations their own sizes in each; and the forms take their own times;
//! - numbers in texts of panics, beyond their lower 32 bits: they may be a `usize` that wrapped.
//!
//! Everything else is a finding; so is an end without a panic, by a fault or a trap, even if both forms have it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use builder::{BuildError, Code, Toolchain};
use db::extension::Extension;
use db::extension::invocation::LimitOverrides;
use db::extension::log::ExtensionLog;
use db::extension::native::Library;
use db::extension::registry::Registry;
use db::tenant::account::Account;
use fastrand::Rng;
use wire::Status;

use crate::corpus::Program;
use crate::pair::{Answer, Pair};
use crate::worker::{self, ORDERED, TABLE, TENANT};

/// The outcome of a trial.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The check of the MIR refuses it.
    RefusedInMir,
    /// The compiler refuses it, or is stopped.
    RefusedByCompiler,
    /// There is no module of it.
    WithoutModule,
    /// Both forms did the same.
    Equal,
    /// Both forms did the same until one of them reached a limit.
    EqualUntilLimit,
    /// The forms differ, or a form ended in a way that safe code has not: what happened.
    Finding(String),
}

const STARTS_MODULES: &str = "#![no_std]\nuse sandstorm::{Args, Db, Error, Reply};\nsandstorm::extension! { read run }\n\
    async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }\n";

/// Enough for every program that ends.
const LIMITS: LimitOverrides = LimitOverrides {
    slice_us: 1_000,
    cpu_us: 100_000,
    wall_us: 20_000_000,
    yields: 10_000,
    parked: 16,
    held_bytes: usize::MAX,
    warm_bytes: 1 << 20,
    sandbox: None,
    stalls: false,
    push_back_after: None,
};

/// Invocations of each program.
const CALLS: usize = 48;

/// Where programs are built and run.
pub struct Bench {
    toolchain: Toolchain,
    folder: PathBuf,
    /// Its first installation started what modules need.
    _registry: Registry,
}

impl Bench {
    /// Prepares the compilers in a folder.
    pub fn new(folder: &Path) -> Self {
        let registry = worker::registry(folder);
        let started = worker::install(&registry, "start", STARTS_MODULES, 1, 1);
        started.unwrap_or_else(|error| panic!("{error}"));
        let checker = Path::new(env!("CARGO_BIN_EXE_splinter-server"));
        let toolchain = Toolchain::prepare_with_checker(folder, checker).expect("the tools of builds");
        Self { toolchain, folder: folder.to_owned(), _registry: registry }
    }

    /// Builds a program as a server does and runs it.
    pub fn trial(&self, program: &Program, random: &mut Rng) -> Outcome {
        let package = program.package().expect("the check has seen it");
        let artefact = match self.toolchain.build(&package) {
            Ok(artefact) => artefact,
            Err(BuildError::Refused(_)) => return Outcome::RefusedInMir,
            Err(BuildError::CompileFailed { .. } | BuildError::CompilerCrashed { .. }) => {
                return Outcome::RefusedByCompiler;
            }
            Err(BuildError::TimedOut { .. } | BuildError::ImportRefused { .. }) => {
                return Outcome::RefusedByCompiler;
            }
            Err(error) => panic!("{error}"),
        };
        let Code::Source { object, module } = &artefact.code else { unreachable!("it is a source") };
        let outcome = match module {
            Ok(module) => {
                let code = module.read().expect("it was built just now");
                let names: Vec<&str> = artefact.functions.iter().map(|function| &*function.name).collect();
                run(&self.load(object, &code), &names, random)
            }
            Err(_) => Outcome::WithoutModule,
        };
        // Thousands of them would fill the disk.
        for file in [Some(object), module.as_ref().ok().map(|module| &module.path)].into_iter().flatten() {
            let _ = fs::remove_file(file);
        }
        outcome
    }

    /// Builds a source that the check refuses, as if there were no check, and runs it.
    pub fn trial_unchecked(&self, source: &str, random: &mut Rng) -> Outcome {
        let names = ["run", "peek"].map(|name| (name, format!("async fn {name}(")));
        let names: Vec<&str> =
            names.iter().filter(|(_, head)| source.contains(head)).map(|(name, _)| *name).collect();
        let Ok((object, module)) = self.toolchain.compile_safe_unchecked(source, &names) else {
            return Outcome::RefusedByCompiler;
        };
        let path = self.folder.join(format!("unchecked-{}.so", random.u64(..)));
        fs::write(&path, object).expect("a shared object");
        let outcome = run(&self.load(&path, &module), &names, random);
        let _ = fs::remove_file(&path);
        outcome
    }

    fn load(&self, object: &Path, module: &[u8]) -> Arc<Library> {
        // SAFETY: the builder made both just now.
        let library = unsafe { Library::open(object, &self.toolchain.sdk_hash()) };
        let library = library.unwrap_or_else(|error| panic!("{error}"));
        // SAFETY: as above.
        Arc::new(unsafe { library.with_module(module) })
    }
}

/// Runs both forms with the same invocations.
fn run(library: &Arc<Library>, names: &[&str], random: &mut Rng) -> Outcome {
    let limits = LimitOverrides { stalls: random.u8(..4) == 0, ..LIMITS };
    let mut pair = Pair::new(limits, |_| {
        let (account, log) = (Arc::new(Account::new(TENANT)), Arc::new(ExtensionLog::new()));
        Arc::new(Extension::new(1, account, "program", 1, Arc::clone(library), log))
    });
    for key in [&b"key"[..], b"other", b"0", b"7", b"list"] {
        let bytes = random.usize(..80);
        let value: Vec<u8> = (0..bytes).map(|_| random.u8(..)).collect();
        pair.put(key, &value);
    }
    for round in 0..CALLS {
        let function = names[round % names.len()];
        let table = if random.u8(..6) == 0 { ORDERED } else { TABLE };
        let (key, arguments) = (key(random), arguments(random, round / names.len()));
        let (native, module) = pair.call_both(function, table, &key, &arguments);
        if is_limit(&native) || is_limit(&module) {
            return Outcome::EqualUntilLimit;
        }
        if is_fault(&native) || is_fault(&module) || !is_same(&native, &module) {
            return Outcome::Finding(format!(
                "{function} with key {key:?}, arguments {arguments:?}: natively {}, in the module {}",
                said(&native),
                said(&module)
            ));
        }
    }
    if !pair.holds_the_same() {
        return Outcome::Finding("the tables differ".into());
    }
    Outcome::Equal
}

fn key(random: &mut Rng) -> Vec<u8> {
    match random.u8(..8) {
        0 => (0..random.usize(..40)).map(|_| random.u8(..)).collect(),
        1 => vec![b'0' + random.u8(..10)],
        2 => b"absent".to_vec(),
        3 => b"list".to_vec(),
        4 => random.u64(..4).to_le_bytes().to_vec(),
        _ => b"key".to_vec(),
    }
}

/// Numbers of 8 bytes, of which the first counts, or noise.
fn arguments(random: &mut Rng, round: usize) -> Vec<u8> {
    const NUMBERS: [u64; 16] = [0, 1, 2, 3, 5, 7, 8, 16, 17, 64, 100, 255, 1_000, 65_536, 70_000, 1 << 20];
    match random.u8(..8) {
        0 => Vec::new(),
        1 => (0..random.usize(..60)).map(|_| random.u8(..)).collect(),
        2 => (0..random.usize(..12)).flat_map(|_| random.u32(..8).to_le_bytes()).collect(),
        _ => {
            let first = if random.bool() { round as u64 } else { NUMBERS[random.usize(..NUMBERS.len())] };
            let rest = (0..random.usize(1..4)).map(|_| NUMBERS[random.usize(..NUMBERS.len())]);
            std::iter::once(first).chain(rest).flat_map(u64::to_le_bytes).collect()
        }
    }
}

fn is_limit((status, _): &Answer) -> bool {
    matches!(
        status,
        Status::ExtensionKilled
            | Status::ExtensionOutOfMemory
            | Status::ExtensionStackOverflow
            | Status::LimitExceeded
    )
}

/// Whether an invocation ended by a fault or a trap: a panic has a text.
fn is_fault((status, body): &Answer) -> bool {
    *status == Status::ExtensionPanicked && body.is_empty()
}

fn is_same(native: &Answer, module: &Answer) -> bool {
    if native == module {
        return true;
    }
    let is_panic = |answer: &Answer| answer.0 == Status::ExtensionPanicked;
    is_panic(native) && is_panic(module) && of_32_bits(&native.1) == of_32_bits(&module.1)
}

/// A text with the lower 32 bits of its numbers.
fn of_32_bits(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let mut parts = vec![String::new()];
    let mut in_number = false;
    for character in text.chars() {
        if character.is_ascii_digit() != in_number {
            in_number = !in_number;
            parts.push(String::new());
        }
        parts.last_mut().expect("there is one").push(character);
    }
    let lower = |part: String| part.parse::<u64>().map_or(part, |number| (number as u32).to_string());
    parts.into_iter().map(lower).collect()
}

fn said((status, body): &Answer) -> String {
    let shown = &body[..body.len().min(200)];
    format!("{status:?} of {} bytes {:?}", body.len(), String::from_utf8_lossy(shown))
}
