//! Finished modules, which bring no source: they run as modules whatever the tenant's limit says, give the next
//! invocation nothing of the one before, and do what the same function of Rust source does.

#[path = "support/finished_get.rs"]
mod finished_get;
#[path = "support/worker.rs"]
mod worker;

use std::path::Path;
use std::sync::Arc;

use builder::Package;
use db::extension::Provenance;
use db::extension::allowance::Sandbox;
use db::extension::invocation::LimitOverrides;
use db::extension::registry::{Installed, Registry};
use finished_get::Files;
use wire::Status;
use worker::{TABLE, TENANT, Worker, registry};

/// Functions that leave words wherever a module can: in data, far beyond it, in a global. `count` waits once, and
/// replies how often each was raised; `spoil` raises them and traps; `wait` touches 4 MiB and waits for ever.
const COUNTER: &str = r#"(module
    (memory (export "memory") 256 256)
    (global (export "__heap_base") i32 (i32.const 65552))
    (global $polls (mut i32) (i32.const 0))
    (data (i32.const 65536) "\05\00\00\00")
    (func $raise (param $at i32)
        (i32.store (local.get $at) (i32.add (i32.load (local.get $at)) (i32.const 1))))
    (func $touch
        (global.set $polls (i32.add (global.get $polls) (i32.const 1)))
        (call $raise (i32.const 65536))
        (call $raise (i32.const 100))
        (call $raise (i32.const 15000000)))
    (func (export "run_count") (param $call i32) (result i64) (local $reply i32)
        (call $touch)
        (if (i32.lt_u (global.get $polls) (i32.const 2)) (then (return (i64.const 0xffffffff))))
        (local.set $reply (i32.load offset=24 (local.get $call)))
        (i32.store (local.get $reply) (i32.load (i32.const 65536)))
        (i32.store offset=4 (local.get $reply) (i32.load (i32.const 100)))
        (i32.store offset=8 (local.get $reply) (i32.load (i32.const 15000000)))
        (i32.store offset=12 (local.get $reply) (global.get $polls))
        (i32.store offset=28 (local.get $call) (i32.const 16))
        (i64.const 0))
    (func (export "run_spoil") (param i32) (result i64) (call $touch) unreachable)
    (func (export "run_wait") (param i32) (result i64) (local $at i32)
        (local.set $at (i32.const 8388608))
        (loop $next
            (call $raise (local.get $at))
            (local.set $at (i32.add (local.get $at) (i32.const 4096)))
            (br_if $next (i32.lt_u (local.get $at) (i32.const 12582912))))
        (i64.const 0xffffffff)))"#;

const FUNCTIONS: &str = "border = 1\n[[function]]\nname = \"count\"\nmode = \"read\"\n\
    [[function]]\nname = \"spoil\"\nmode = \"write\"\ndoc = \"Ends badly.\\nArguments: none\"\n\
    [[function]]\nname = \"wait\"\nmode = \"read\"\n";

/// Functions in AssemblyScript with objects, strings and maps. `count` waits once; the others end badly.
const OBJECTS: &str = r#"
import { Call, Code, PENDING, reply } from "./splinter";
export { __heap_base };
class Named { constructor(public name: string, public number: i32) {} }
let kept: Named | null = null;
export function run_count(call: Call): Code {
  if (kept === null) { kept = new Named("kept", <i32>call.keyBytes); return PENDING; }
  const all: Named[] = [];
  const numbers = new Map<string, i32>();
  for (let number = 0; number < 1000; number++) {
    all.push(new Named("n" + number.toString(), number));
    numbers.set(all[number].name, number);
  }
  let sum = 0;
  for (let number = 0; number < 1000; number++) sum += numbers.get("n" + number.toString());
  const fresh = new Uint8Array(4096);
  for (let at = 0; at < fresh.length; at++) sum += fresh[at];
  all.sort((one, other) => other.number - one.number);
  const text = String.UTF8.encode(`${sum} ${all[0].name} ${kept!.name}${kept!.number}`);
  return reply(call, changetype<usize>(text), text.byteLength);
}
export function run_index(call: Call): Code { return [1, 2, 3][call.keyBytes]; }
export function run_throw(call: Call): Code { throw new Error("ü".repeat(1000)); }
export function run_grow(call: Call): Code { const all = [1]; while (true) all.push(1); }
"#;

fn install(registry: &Registry, files: Files, id: u32) -> Arc<Installed> {
    let installed = registry.install(TENANT, &format!("e{id}"), files, 0, || Ok::<_, String>((id, 1)));
    installed.unwrap_or_else(|error| panic!("{error}"))
}

fn counter() -> Files {
    let module = wat::parse_str(COUNTER).expect("a module's text");
    vec![("functions.toml".into(), FUNCTIONS.into()), ("module.wasm".into(), module)]
}

/// Runs one invocation to its end: status and body.
fn call(worker: &mut Worker, installed: &Installed, function: &str) -> (Status, Vec<u8>) {
    let mut answer = None;
    let on_done = &mut |status, body: &[u8]| answer = Some((status, body.to_vec()));
    worker.run(&installed.extension, function, b"key", b"", on_done);
    answer.expect("an invocation ends")
}

#[test]
fn a_finished_module_runs_as_one_and_is_as_new_for_each_invocation() {
    let cache = tempfile::tempdir().expect("a folder");
    let registry = registry(cache.path());
    let installed = install(&registry, counter(), 1);
    assert!(!installed.extension.is_native());
    assert_eq!(installed.extension.provenance(), Provenance::Unknown);
    assert_eq!(installed.extension.arguments(1), "Arguments: none");
    for sandbox in [None, Some(Sandbox::Native), Some(Sandbox::Wasm)] {
        let mut worker = Worker::with_budget(LimitOverrides { sandbox, ..LimitOverrides::default() });
        for round in 0..50 {
            let (status, body) = call(&mut worker, &installed, "count");
            let numbers: Vec<u32> =
                body.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
            assert_eq!((status, &*numbers), (Status::Ok, &[7, 2, 2, 2][..]), "round {round}");
            if round % 5 == 0 {
                assert_ne!(call(&mut worker, &installed, "spoil").0, Status::Ok);
            }
        }
    }
}

#[test]
fn what_a_finished_module_touches_is_counted_as_held() {
    let cache = tempfile::tempdir().expect("a folder");
    let registry = registry(cache.path());
    let installed = install(&registry, counter(), 1);
    // Half of it may be one tenant's.
    let budget = LimitOverrides { held_bytes: 4 << 20, ..LimitOverrides::default() };
    let mut worker = Worker::with_budget(budget);
    let (status, body) = call(&mut worker, &installed, "wait");
    let text = String::from_utf8_lossy(&body);
    assert!(status != Status::Ok && text.contains("held_bytes_of_a_core"), "{status:?} {text}");
}

#[test]
fn a_get_in_c_does_what_a_get_in_rust_does() {
    finished_get::in_c().into_iter().for_each(compare_with_rust);
}

#[test]
fn a_get_in_assemblyscript_does_what_a_get_in_rust_does() {
    finished_get::in_assemblyscript().into_iter().for_each(compare_with_rust);
}

#[test]
fn objects_of_assemblyscript_lie_in_the_arena() {
    let list = ["count", "index", "throw", "grow"]
        .map(|name| format!("[[function]]\nname = \"{name}\"\nmode = \"read\"\n"));
    let files = finished_get::of_assemblyscript(OBJECTS, &format!("border = 1\n{}", list.concat()));
    let Some(files) = files else { return };
    let cache = tempfile::tempdir().expect("a folder");
    let installed = install(&registry(cache.path()), files, 1);
    let mut worker = Worker::with_budget(LimitOverrides::default());
    for _ in 0..3 {
        let mut answer = |function| {
            let (status, body) = call(&mut worker, &installed, function);
            (status, String::from_utf8(body).expect("text"))
        };
        assert_eq!(answer("count"), (Status::Ok, "499500 n999 kept3".into()));
        let (status, text) = answer("index");
        assert!(status == Status::ExtensionPanicked && text.contains("Index out of range"), "{text}");
        let (status, text) = answer("throw");
        assert!(status == Status::ExtensionPanicked && text.contains(&"ü".repeat(80)), "{text}");
        assert_eq!(answer("grow").0, Status::ExtensionOutOfMemory);
    }
}

/// Runs `get` in Rust and in another language with the same keys: they answer the same, and spend the same.
fn compare_with_rust(in_another: Files) {
    let cache = tempfile::tempdir().expect("a folder");
    let registry = registry(cache.path());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ext/get");
    let package = Package::from_directory(&folder).expect("a package");
    let source = package.files().map(|(path, bytes)| (path.to_owned(), bytes.to_vec())).collect();
    let (of_source, finished) = (install(&registry, source, 1), install(&registry, in_another, 2));
    for (stalls, sandbox) in [false, true]
        .into_iter()
        .flat_map(|stalls| [Sandbox::Native, Sandbox::Wasm].map(|sandbox| (stalls, Some(sandbox))))
    {
        let budget = LimitOverrides {
            sandbox,
            slice_us: 3_600_000_000,
            cpu_us: u64::MAX,
            wall_us: u64::MAX,
            stalls,
            ..LimitOverrides::default()
        };
        let mut workers = [Worker::with_budget(budget), Worker::with_budget(budget)];
        for bytes in [0, 1, 7, 8, 9, 100, 4_096, 65_537, 1 << 20] {
            for worker in &workers {
                worker.put(format!("{bytes}").as_bytes(), &vec![bytes as u8; bytes]);
            }
        }
        let long = vec![b'k'; 1 << 16];
        let keys: [&[u8]; 13] = [
            b"0",
            b"1",
            b"7",
            b"8",
            b"9",
            b"100",
            b"4096",
            b"65537",
            b"1048576",
            b"",
            b"absent",
            b"\xff\0",
            &long[..255],
        ];
        for (key, table) in keys.iter().flat_map(|key| [(key, TABLE), (key, 77)]) {
            let [one, other] = [&of_source, &finished].map(|installed| installed.extension.clone());
            let answers = workers.each_mut().map(|_| None);
            let [mut first, mut second]: [Option<(Status, Vec<u8>)>; 2] = answers;
            let [left, right] = &mut workers;
            left.run_in(&one, ("get", table), key, b"", &mut |status, body| {
                first = Some((status, body.to_vec()))
            });
            right.run_in(&other, ("get", table), key, b"", &mut |status, body| {
                second = Some((status, body.to_vec()))
            });
            let same = |answer: Option<(Status, Vec<u8>)>| {
                let (status, body) = answer.expect("an invocation ends");
                (status, String::from_utf8_lossy(&body).replace("e2@1", "e1@1"))
            };
            assert_eq!(same(first), same(second), "{key:?} of {table}");
        }
    }
    let [one, other] = [&of_source, &finished].map(|installed| installed.extension.metrics.summary());
    assert_eq!((one.ends, one.spent), (other.ends, other.spent), "yields and reads are the same");
}
