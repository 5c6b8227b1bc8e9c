//! The two forms of an extension do the same: machine code and module give equal replies, writes, errors and polls.
//!
//! Two workers in miniature get the same invocations, one runs the shared object and one the module that the builder
//! made of the same source. Arguments are partly what the functions want and partly noise. After each invocation status
//! and body are compared, and now and then everything that the tables hold.

#[path = "support/pair.rs"]
mod pair;
#[path = "support/seed.rs"]
mod seed;
#[path = "support/worker.rs"]
mod worker;

use std::path::Path;
use std::sync::Arc;

use builder::Package;
use db::extension::allowance::Sandbox;
use db::extension::invocation::LimitOverrides;
use db::extension::registry::Registry;
use fastrand::Rng;
use pair::{Answer, Pair};
use wire::Status;
use worker::{ORDERED, TABLE, TENANT, registry};

/// The guide for authors: its first two blocks of Rust are an extension, and a part of a function.
const GUIDE: &str = include_str!("../../docs/extensions.md");
/// The source that `splinter ext new` writes.
const TEMPLATE: &str = include_str!("../../builder/template.rs");

/// Returns the files of an extension of this project.
fn files_of(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ext").join(name);
    let package = Package::from_directory(&folder).unwrap_or_else(|error| panic!("{name}: {error}"));
    package.files().map(|(path, bytes)| (path.to_owned(), bytes.to_vec())).collect()
}

/// Limits without time, which has no part in what is compared.
const TIMELESS: LimitOverrides = LimitOverrides {
    slice_us: 3_600_000_000,
    cpu_us: u64::MAX,
    wall_us: u64::MAX,
    yields: u32::MAX,
    parked: 16,
    held_bytes: usize::MAX,
    warm_bytes: 1 << 20,
    sandbox: None,
    stalls: false,
    push_back_after: None,
};

/// What this test asks of a pair.
trait Compared: Sized {
    /// Installs an extension in both forms.
    fn install(
        registry: &Registry,
        name: &str,
        files: Vec<(String, Vec<u8>)>,
        budget: LimitOverrides,
        stalls: bool,
    ) -> Self;

    /// Installs an extension of this project.
    fn of(registry: &Registry, name: &str, stalls: bool) -> Self {
        Self::install(registry, name, files_of(name), TIMELESS, stalls)
    }

    /// Runs one invocation in both forms; they answer the same.
    fn call(&mut self, function: &str, table: u32, key: &[u8], arguments: &[u8]) -> Answer;

    /// All that the tables hold is the same, and so is what was counted.
    fn compare(&self);
}

impl Compared for Pair {
    fn install(
        registry: &Registry,
        name: &str,
        files: Vec<(String, Vec<u8>)>,
        budget: LimitOverrides,
        stalls: bool,
    ) -> Self {
        Self::new(LimitOverrides { stalls, ..budget }, |sandbox| {
            let id = if sandbox == Sandbox::Native { 1 } else { 2 };
            let install = registry
                .install(TENANT, &format!("{name}-{id}"), files.clone(), 0, || Ok::<_, String>((id, 1)));
            let installed = install.unwrap_or_else(|error| panic!("{name}: {error}"));
            Arc::clone(&installed.extension)
        })
    }

    fn call(&mut self, function: &str, table: u32, key: &[u8], arguments: &[u8]) -> Answer {
        let (native, module) = self.call_both(function, table, key, arguments);
        assert_eq!(
            (native.0, String::from_utf8_lossy(&native.1)),
            (module.0, String::from_utf8_lossy(&module.1)),
            "{function} of {key:?} with {arguments:?}"
        );
        assert_eq!(native.1, module.1, "{function} of {key:?} with {arguments:?}");
        native
    }

    fn compare(&self) {
        assert!(self.holds_the_same());
        let [native, module] = [&self.native, &self.module].map(|side| side.extension.metrics.summary());
        assert_eq!((native.ends, native.spent), (module.ends, module.spent));
    }
}

fn noise(random: &mut Rng, bytes_max: usize) -> Vec<u8> {
    (0..random.usize(0..=bytes_max)).map(|_| random.u8(..)).collect()
}

#[test]
fn small_functions_do_the_same() {
    with_and_without_stalls(small_functions);
}

fn small_functions(registry: &Registry, stalls: bool) {
    let mut random = Rng::with_seed(seed::seed());
    let mut noop = Pair::of(registry, "noop", stalls);
    for _ in 0..100 {
        noop.call("noop", TABLE, &noise(&mut random, 40), &noise(&mut random, 5_000));
    }
    noop.compare();
    let mut get = Pair::of(registry, "get", stalls);
    let mut put = Pair::of(registry, "put", stalls);
    for bytes in [0, 1, 100, 4_096, 65_536, 1 << 20] {
        let (key, value) = (format!("{bytes}").into_bytes(), vec![7; bytes]);
        get.put(&key, &value);
        assert_eq!(get.call("get", TABLE, &key, b""), (Status::Ok, value.clone()));
        assert_eq!(put.call("put", TABLE, &key, &value).0, Status::Ok);
    }
    assert_ne!(get.call("get", TABLE, b"absent", b"").0, Status::Ok);
    assert_ne!(get.call("get", 77, b"1", b"").0, Status::Ok, "no such table");
    assert_ne!(put.call("put", 77, b"1", b"").0, Status::Ok);
    for _ in 0..200 {
        put.call("put", TABLE, &[random.u8(..8)], &noise(&mut random, 300));
    }
    get.compare();
    put.compare();
}

/// Runs a test with and without stalls at every host call, over one registry.
fn with_and_without_stalls(test: impl Fn(&Registry, bool)) {
    let cache = tempfile::tempdir().expect("a folder");
    let registry = registry(cache.path());
    test(&registry, false);
    test(&registry, true);
}

/// Little-endian numbers and bytes, one after the other.
fn arguments(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn batches_of_reads_do_the_same() {
    with_and_without_stalls(batches_of_reads);
}

fn batches_of_reads(registry: &Registry, stalls: bool) {
    let mut random = Rng::with_seed(seed::seed());
    let mut aggregate = Pair::of(registry, "aggregate", stalls);
    let mut checksum = Pair::of(registry, "checksum", stalls);
    let keys: Vec<Vec<u8>> = (0..300u32).map(|number| format!("{number:030}").into_bytes()).collect();
    for key in &keys {
        let value = noise(&mut random, 200);
        aggregate.put(key, &value);
        checksum.put(key, &value);
    }
    checksum.put(b"large", &vec![3; 1 << 20]);
    for round in 0..120 {
        let count = [0, 1, 3, 64, 65, 200][round % 6];
        let listed: Vec<&Vec<u8>> = (0..count).map(|_| &keys[random.usize(..keys.len())]).collect();
        aggregate.put(b"list", &listed.iter().flat_map(|key| key.iter().copied()).collect::<Vec<u8>>());
        aggregate.call("aggregate", TABLE, b"list", &noise(&mut random, 6));
        aggregate.call("aggregate", TABLE, b"list", b"");
        let mut each: Vec<u8> = Vec::new();
        for key in listed {
            each.extend_from_slice(&(key.len() as u16).to_le_bytes());
            each.extend_from_slice(key);
        }
        if round % 10 == 0 {
            each.extend_from_slice(&arguments(&[&5u16.to_le_bytes(), b"large"]));
        }
        for function in ["checksum", "checksum_each"] {
            checksum.call(function, TABLE, b"", &each);
            checksum.call(function, TABLE, b"", &noise(&mut random, 60));
        }
    }
    aggregate.compare();
    checksum.compare();
}

#[test]
fn scans_and_queues_do_the_same() {
    with_and_without_stalls(scans_and_queues);
}

fn scans_and_queues(registry: &Registry, stalls: bool) {
    let mut random = Rng::with_seed(seed::seed());
    let mut scan = Pair::of(registry, "scan", stalls);
    for round in 0..400 {
        let prefix = &b"queue"[..random.usize(0..=5)];
        match random.u8(..6) {
            0..=2 => scan.call("push", ORDERED, prefix, &noise(&mut random, 2_000)),
            3 => scan.call("pop", ORDERED, prefix, b""),
            4 => scan.call("count", ORDERED, prefix, b""),
            _ => {
                let order = arguments(&[&random.u32(0..300).to_le_bytes(), &[random.u8(..2)]]);
                scan.call("scan", [ORDERED, TABLE][usize::from(round % 17 == 0)], prefix, &order)
            }
        };
        if round % 50 == 0 {
            scan.compare();
        }
    }
    scan.compare();
}

/// Reads 10,000 times the first object by a scan within a scan, and all by an enumeration; what a get lent stays.
const MANY_PAGES: &str = "#![no_std]
use sandstorm::{Args, Cursor, Db, EntryPage, Error, KeyRange, Reply};
sandstorm::extension! { read many }
/// Counts bytes.
async fn many(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let (mut bytes, mut kept) = (0u64, None);
    for _ in 0..10_000 {
        let mut outer = db.scan(args.table(), KeyRange::all().limit(1));
        while let Some(entry) = outer.next().await? {
            let mut inner = db.scan(args.table(), KeyRange::all().from(entry.key).limit(1));
            while let Some(again) = inner.next().await? {
                if again != entry { return Err(Error::Application(1)); }
                bytes += again.value.len() as u64;
            }
        }
        let mut page = EntryPage::new();
        db.enumerate(args.table(), Cursor::start(), &mut page).await?;
        bytes += page.iter().map(|entry| entry.value.len() as u64).sum::<u64>();
        let value = db.get(args.table(), args.key()).await?;
        if *kept.get_or_insert(value) != value { return Err(Error::Application(2)); }
    }
    reply.u64(bytes)
}
";

#[test]
fn thousands_of_short_scans_need_the_memory_of_one() {
    with_and_without_stalls(|registry, stalls| {
        let manifest = b"[package]\nname = \"pages\"\n[dependencies]\nsandstorm = { path = \"sandstorm\" }\n";
        let files = vec![
            ("Cargo.toml".to_owned(), manifest.to_vec()),
            ("src/lib.rs".to_owned(), MANY_PAGES.as_bytes().to_vec()),
        ];
        let mut pages = Pair::install(registry, "pages", files, TIMELESS, stalls);
        let put = Pair::of(registry, "put", false);
        for side in [&mut pages.native, &mut pages.module] {
            for (key, bytes) in [(&b"first"[..], 1_000), (b"kept", 8), (b"other", 1_000)] {
                let put = &put.native.extension;
                side.worker.run_in(put, ("put", ORDERED), key, &vec![7; bytes], &mut |status, _| {
                    assert_eq!(status, Status::Ok);
                });
            }
        }
        let found = (10_000_u64 * 3_008).to_le_bytes().to_vec();
        assert_eq!(pages.call("many", ORDERED, b"kept", b""), (Status::Ok, found));
    });
}

#[test]
fn a_graph_does_the_same() {
    with_and_without_stalls(a_graph);
}

fn a_graph(registry: &Registry, stalls: bool) {
    let mut random = Rng::with_seed(seed::seed());
    let mut tao = Pair::of(registry, "tao", stalls);
    let declared = arguments(&[b"t", &1u32.to_le_bytes()]);
    tao.call("assoc_declare", TABLE, &declared, &2u32.to_le_bytes());
    for id in 0..20u64 {
        let key = arguments(&[b"o", &id.to_le_bytes()]);
        tao.call("obj_add", TABLE, &key, &arguments(&[&7u32.to_le_bytes(), &noise(&mut random, 30)]));
    }
    let mut answered = 0;
    for round in 0..1_500 {
        let [id, other] = [(); 2].map(|()| random.u64(..24).to_le_bytes());
        let kind = random.u32(1..4).to_le_bytes();
        let (object, list) = (arguments(&[b"o", &id]), arguments(&[b"l", &id, &kind]));
        let number = |random: &mut Rng| random.u32(..8).to_le_bytes();
        let time = |random: &mut Rng| random.u64(..1_000).to_le_bytes();
        let (status, _) = match random.u8(..13) {
            0 => tao.call("obj_get", TABLE, &object, b""),
            1 => {
                let wanted = arguments(&[&u64::MAX.to_le_bytes(), &time(&mut random), &other, &id]);
                tao.call("assoc_get", TABLE, &list, &wanted)
            }
            2 => {
                let wanted = arguments(&[&number(&mut random), &number(&mut random)]);
                tao.call("assoc_range", TABLE, &list, &wanted)
            }
            3 => {
                let wanted = arguments(&[&u64::MAX.to_le_bytes(), &time(&mut random), &number(&mut random)]);
                tao.call("assoc_time_range", TABLE, &list, &wanted)
            }
            4 => tao.call("assoc_count", TABLE, &list, b""),
            5 => {
                let wanted = arguments(&[&number(&mut random), &[random.u8(..2)]]);
                tao.call("friends", TABLE, &list, &wanted)
            }
            6 => {
                let visits = 100u32.to_le_bytes();
                let wanted = arguments(&[&number(&mut random), &visits, &[random.u8(..2)]]);
                tao.call("friends_of_friends", TABLE, &list, &wanted)
            }
            7 => tao.call("obj_update", TABLE, &object, &arguments(&[&kind, &noise(&mut random, 60)])),
            8 if random.u8(..4) == 0 => tao.call("obj_delete", TABLE, &object, b""),
            9 => tao.call("assoc_delete", TABLE, &list, &other),
            10 => tao.call("obj_get", TABLE, &noise(&mut random, 12), &noise(&mut random, 12)),
            _ => {
                let data = arguments(&[&other, &time(&mut random), &noise(&mut random, 40)]);
                tao.call("assoc_add", TABLE, &list, &data)
            }
        };
        answered += u32::from(status == Status::Ok);
        if round % 100 == 0 {
            tao.compare();
        }
    }
    tao.compare();
    assert!(answered > 500, "most calls are meant to succeed: {answered}");
}

#[test]
fn accounts_and_passwords_do_the_same() {
    with_and_without_stalls(accounts_and_passwords);
}

fn accounts_and_passwords(registry: &Registry, stalls: bool) {
    let mut random = Rng::with_seed(seed::seed());
    let mut bank = Pair::of(registry, "ycsbt", stalls);
    for _ in 0..400 {
        let (account, other) = (random.u64(..10).to_le_bytes(), random.u64(..10).to_le_bytes());
        let amount = random.i64(-2..100).to_le_bytes();
        match random.u8(..6) {
            0 | 1 => bank.call("open", TABLE, &account, &amount),
            2 => bank.call("transfer", TABLE, &account, &arguments(&[&amount, &other])),
            3 => bank.call("balance", TABLE, &account, b""),
            4 => bank.call("audit", TABLE, b"", &arguments(&[&account, &10u32.to_le_bytes()])),
            _ => bank.call("sum", TABLE, b"", &noise(&mut random, 14)),
        };
    }
    bank.compare();
    let mut auth = Pair::of(registry, "auth", stalls);
    let wanted = arguments(&[&1_000u32.to_le_bytes(), &[9; 16], b"a long password"]);
    assert_eq!(auth.call("set_password", TABLE, b"user", &wanted).0, Status::Ok);
    auth.call("verify", TABLE, b"user", b"a long password");
    auth.call("verify", TABLE, b"user", b"another password");
    auth.call("set_password", TABLE, b"user", &noise(&mut random, 40));
    auth.compare();
}

/// Returns the files of an extension with this source.
fn files_with(source: &str) -> Vec<(String, Vec<u8>)> {
    let mut files = files_of("noop");
    let (_, text) = files.iter_mut().find(|(path, _)| path == "src/lib.rs").expect("a source");
    *text = source.as_bytes().to_vec();
    files
}

#[test]
fn the_guides_examples_do_the_same() {
    with_and_without_stalls(the_guides_examples);
}

fn the_guides_examples(registry: &Registry, stalls: bool) {
    let mut random = Rng::with_seed(seed::seed());
    let mut blocks = GUIDE.split("```rust\n").skip(1).map(|rest| rest.split("```").next().expect("its end"));
    let (transfers, pages) = (blocks.next().expect("a source"), blocks.next().expect("a loop"));
    let install = |name, source: &str| Pair::install(registry, name, files_with(source), TIMELESS, stalls);

    let mut bank = install("bank", transfers);
    let mut moved = 0;
    for account in 0..4u8 {
        bank.put(&[account], &100_i64.to_le_bytes());
    }
    for _ in 0..200 {
        let (from, to, amount) = (random.u8(..5), random.u8(..5), random.i64(-20..60).to_le_bytes());
        let (status, _) = bank.call("transfer", TABLE, &[from], &arguments(&[&amount, &[to]]));
        moved += u32::from(status == Status::Ok);
        bank.call("balance", TABLE, &[random.u8(..5)], b"");
        bank.call("transfer", TABLE, &[from], &noise(&mut random, 12));
    }
    assert!(moved > 50, "{moved} transfers");
    bank.compare();

    let mut longest = install(
        "longest",
        &format!(
            "#![no_std]\nextern crate alloc;\nuse alloc::vec::Vec;\n\
             use sandstorm::{{Args, Cursor, Db, EntryPage, Error, Reply}};\n\
             sandstorm::extension! {{ read longest }}\n/// The longest key.\n\
             async fn longest(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {{\n\
             {pages}\nreply.write(&longest)\n}}\n"
        ),
    );
    for bytes in 1..=100 {
        longest.put(&vec![7; bytes], b"");
    }
    assert_eq!(longest.call("longest", TABLE, b"", b""), (Status::Ok, vec![7; 100]));
    longest.compare();

    let mut greeter = install("greeter", TEMPLATE);
    greeter.put(b"1", b"Ada");
    for (key, greeting) in [(b"1", b"Hello"), (b"2", b"Hello"), (b"1", b"\xff\xfe\0ab")] {
        greeter.call("greet", TABLE, key, greeting);
    }
    assert_eq!(greeter.call("greet", TABLE, b"1", b"Hello"), (Status::Ok, b"Hello, Ada".to_vec()));
    greeter.compare();
}

#[test]
fn functions_that_misbehave_end_the_same() {
    with_and_without_stalls(functions_that_misbehave);
}

fn functions_that_misbehave(registry: &Registry, stalls: bool) {
    let mut misbehave = Pair::of(registry, "misbehave", stalls);
    for (function, expected) in [
        ("recurse", Status::ExtensionStackOverflow),
        ("recurse_into_the_host", Status::ExtensionStackOverflow),
        ("huge_frame", Status::ExtensionStackOverflow),
        ("panics", Status::ExtensionPanicked),
        ("panic_in_drop", Status::ExtensionPanicked),
        ("panic_while_it_says_why", Status::ExtensionPanicked),
        ("index_beyond", Status::ExtensionPanicked),
        ("divide_by_zero", Status::ExtensionPanicked),
        ("allocate_forever", Status::ExtensionOutOfMemory),
        ("grow_forever", Status::ExtensionOutOfMemory),
        ("allocate_at_once", Status::ExtensionOutOfMemory),
        ("reply_flood", Status::ReplyTooLarge),
        ("write_flood", Status::LimitExceeded),
        ("delete_flood", Status::LimitExceeded),
    ] {
        for (key, bytes) in [(&b"key"[..], &b"mark"[..]), (b"", b"")] {
            let (native, module) = misbehave.call_both(function, TABLE, key, bytes);
            assert_eq!((native.0, module.0), (expected, expected), "{function}");
        }
    }
    for function in ["write_then_error", "sneak", "peek"] {
        misbehave.call(function, TABLE, b"key", b"table");
    }
    for side in [&misbehave.native, &misbehave.module] {
        assert!(side.worker.objects(TABLE).is_empty(), "what fails leaves nothing behind");
    }
}

#[test]
fn functions_that_never_end_are_killed_in_both_forms() {
    let cache = tempfile::tempdir().expect("a folder");
    let registry = registry(cache.path());
    let budget = LimitOverrides { cpu_us: 2_000, wall_us: 100_000, ..LimitOverrides::default() };
    let mut misbehave = Pair::install(&registry, "misbehave", files_of("misbehave"), budget, false);
    for function in ["spin", "spin_yielding", "loop_in_drop_at_the_end", "look_for_tables", "read_forever"] {
        for _ in 0..5 {
            let (native, module) = misbehave.call_both(function, TABLE, b"key", b"mark");
            assert_eq!(
                (native.0, module.0),
                (Status::ExtensionKilled, Status::ExtensionKilled),
                "{function}"
            );
        }
    }
    for side in [&misbehave.native, &misbehave.module] {
        assert!(side.worker.objects(TABLE).is_empty(), "what is killed leaves nothing behind");
    }
}
