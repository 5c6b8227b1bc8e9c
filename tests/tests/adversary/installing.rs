//! Installations as a weapon: again and again, many at a time, bombs for the compiler, holes of the language.

use std::fs;
use std::path::Path;
use std::thread;

use client::{Error, Status};
use tests::effort::{rng, rounds};
use tests::package::install_source;

use super::latency::Latency;
use super::stage::{Stage, in_time, refusal};

/// Sources that are refused by the check, each with the refusal in its first line; `builder` owns them.
const HOLES: &str = "builder/tests/holes";
/// There are at least so many; fewer would mean that the test does not find them.
const HOLES_MIN: usize = 130;

/// A function that answers with a number.
fn answering(number: u32) -> String {
    format!(
        "#![no_std]\nuse sandstorm::{{Args, Db, Error, Reply}};\nsandstorm::extension! {{ read answer }}\n\
         /// Answers.\nasync fn answer(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> \
         {{\n    reply.u32({number})\n}}\n"
    )
}

fn answer(stage: &mut Stage) -> u32 {
    let reply = in_time(|| stage.client.invoke("again.answer", stage.table, b"", b"")).expect("an answer");
    u32::from_le_bytes(reply.try_into().expect("a number"))
}

#[test]
fn installing_in_a_loop_serves_each_time_the_latest() {
    let mut stage = Stage::new();
    let mut latency = Latency::default();
    for number in 0..rounds(5, 100) as u32 {
        let source = answering(number);
        let version = latency.of(|| install_source(&mut stage.client, "again", &source)).expect("installed");
        assert_eq!(answer(&mut stage), number, "version {version}");
        stage.neighbours.are_well();
    }
    latency.print("an install of a new source");
    let mut latency = Latency::default();
    for number in 0..rounds(150, 800) as u32 {
        let which = number % 3;
        latency.of(|| install_source(&mut stage.client, "again", &answering(which))).expect("installed");
        assert_eq!(answer(&mut stage), which);
        if number % 5 == 4 {
            stage.client.extension_remove("again").expect("removed");
            let gone = refusal(stage.client.invoke("again.answer", stage.table, b"", b""));
            assert_eq!(gone.0, Status::UnknownExtension);
        }
        stage.neighbours.are_well();
    }
    latency.print("an install of a known source");
    stage.ends_unharmed();
}

#[test]
fn more_installs_at_a_time_than_a_tenant_may_are_told_so_and_the_others_end_well() {
    let stage = Stage::new();
    let outcomes: Vec<Result<u32, Error>> = thread::scope(|scope| {
        let install = |number: u32| {
            let mut client = stage.server.client(&stage.mallory);
            scope.spawn(move || {
                install_source(&mut client, &format!("many-{number}"), &answering(1000 + number))
            })
        };
        let threads: Vec<_> = (0..12).map(install).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let installed = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    println!("{installed} of {} installed", outcomes.len());
    assert!(installed >= 4, "{outcomes:?}");
    for outcome in outcomes.into_iter().filter(Result::is_err) {
        let (status, text) = refusal(outcome);
        assert!(matches!(status, Status::Retry | Status::LimitExceeded), "{status:?} {text}");
    }
    stage.ends_unharmed();
}

/// Types that double with each step, until the compiler has no memory or time left.
fn type_bomb() -> String {
    let steps: String = (0..40)
        .map(|step| format!("    let x{} = (x{step}, x{step}, x{step}, x{step});\n", step + 1))
        .collect();
    format!("{}fn bomb() -> usize {{\n    let x0 = 1u64;\n{steps}    size_of_val(&x40)\n}}\n", calling_bomb())
}

/// Functions for ever new types, until the compiler's limit of recursion.
fn generic_bomb() -> String {
    let body = "struct Pair<A>(A, A);\nfn grow<A: Clone>(value: A, depth: u32) -> usize {\n    \
                if depth == 0 { return size_of::<A>(); }\n    grow(Pair(value.clone(), value), depth - 1)\n}\n\
                impl<A: Clone> Clone for Pair<A> {\n    fn clone(&self) -> Pair<A> { \
                Pair(self.0.clone(), self.1.clone()) }\n}\nfn bomb() -> usize { grow(1u8, 9) }\n";
    calling_bomb() + body
}

/// A constant that takes for ever to compute.
fn constant_bomb() -> String {
    let body = "const LONG: u64 = { let mut i = 0u64; while i < 1 << 60 { i += 1; } i };\n\
                fn bomb() -> usize { LONG as usize }\n";
    calling_bomb() + body
}

/// An artefact of gigabytes.
fn size_bomb() -> String {
    calling_bomb()
        + "const HUGE: [u8; 3_000_000_000] = [7; 3_000_000_000];\nfn bomb() -> usize { HUGE.len() }\n"
}

fn calling_bomb() -> String {
    answering(1).replace("reply.u32(1)", "reply.u64(bomb() as u64)")
}

fn bombs_go_off(bombs: &[(&str, String)]) {
    let mut stage = Stage::new();
    for (name, source) in bombs {
        let mut latency = Latency::default();
        let outcome = latency.of(|| install_source(&mut stage.client, "bomb", source));
        latency.print(&format!("a bomb of {name}"));
        let (status, text) = refusal(outcome);
        assert!(matches!(status, Status::SourceRefused | Status::CompileFailed), "{name}: {status:?} {text}");
        stage.neighbours.are_well();
    }
    stage.ends_unharmed();
}

#[test]
fn bombs_for_the_compiler_go_off_in_the_sandbox_alone() {
    let nested = format!("fn bomb() -> usize {{ {}1{} }}", "(".repeat(50_000), ")".repeat(50_000));
    let long = format!("fn bomb() -> usize {{ 1{} }}", "+1".repeat(100_000));
    bombs_go_off(&[
        ("generics", generic_bomb()),
        ("size", size_bomb()),
        ("nesting", calling_bomb() + &nested),
        ("length", calling_bomb() + &long),
    ]);
}

#[test]
fn bombs_that_keep_the_compiler_busy_are_stopped() {
    // Each takes all the time that the sandbox gives.
    if rounds(0, 1) > 0 {
        bombs_go_off(&[("types", type_bomb()), ("constant", constant_bomb())]);
    }
}

#[test]
fn every_known_hole_of_the_language_is_refused_over_the_wire() {
    let mut stage = Stage::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the root");
    let folder = fs::read_dir(root.join(HOLES)).expect("builder has them");
    let mut paths: Vec<_> = folder.map(|entry| entry.expect("a file").path()).collect();
    assert!(paths.len() >= HOLES_MIN, "{} holes", paths.len());
    // In a short run some of them: the tests of `builder` try all, here it is about the way there.
    rng().shuffle(&mut paths);
    for path in paths.iter().take(rounds(40, usize::MAX)) {
        let text = fs::read_to_string(path).unwrap();
        let expected = text.lines().next().and_then(|line| line.strip_prefix("//! refused: ")).unwrap();
        let (status, said) = refusal(install_source(&mut stage.client, "hole", &text));
        assert_eq!(status, Status::SourceRefused, "{}: {said}", path.display());
        assert!(said.contains(expected), "{}: {said}", path.display());
    }
    assert_eq!(stage.client.extension_list().unwrap().len(), 1, "misbehave alone");
    stage.ends_unharmed();
}
