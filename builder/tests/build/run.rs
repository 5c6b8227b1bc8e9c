//! A built artefact at work: glue, border and SDK as they meet in a server.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use super::host::End;
use super::host::Loaded;
use crate::extension;
use crate::toolchain;

const PROBE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/good/probe.rs");
/// Set in a process that is to overflow a stack.
const OVERFLOW: &str = "SPLINTER_TEST_OVERFLOW";
/// Set in a process that is to loop for ever.
const ENDLESS: &str = "SPLINTER_TEST_ENDLESS";
/// Time to build and load the artefact in, and more: the loop that is miscompiled ends at once.
const LOOPS_FOR: Duration = Duration::from_secs(4);

fn probe() -> Loaded {
    let text = fs::read_to_string(PROBE).unwrap();
    let artefact = toolchain().build(&extension(&text)).unwrap();
    Loaded::open(artefact.code.object().unwrap(), toolchain().sdk_hash())
}

fn returned(end: End) -> (u64, u32, Vec<u8>, Vec<String>) {
    match end {
        End::Returned { code, pending, reply, done } => (code, pending, reply, done),
        End::Abandoned { kind, text } => panic!("abandoned: {kind} {text}"),
    }
}

fn abandoned(end: End) -> (u32, String) {
    match end {
        End::Abandoned { kind, text } => (kind, text),
        returned => panic!("{returned:?}"),
    }
}

#[test]
fn functions_run_and_wait_for_the_host() {
    let probe = probe();
    assert_eq!(probe.functions()[0], ("copy", 0));
    assert!(probe.functions().contains(&("sum", 1)));
    for stalls in [0, 3] {
        let (code, pending, reply, done) = returned(probe.invoke("copy", b"", stalls));
        assert_eq!((code, pending, &reply[..]), (0, stalls as u32, &b"the value"[..]));
        assert_eq!(done, ["get 7 key", "log 2 9 bytes"]);
        let (code, pending, reply, done) = returned(probe.invoke("many", b"", stalls));
        assert_eq!((code, pending, reply.len()), (0, 3 * stalls as u32, 70));
        assert_eq!(
            (reply[9], reply[10], &done[..]),
            (1, 2, &["get_many 7 32", "get_many 7 32", "get_many 7 6"].map(String::from)[..])
        );
        let (code, _, reply, done) = returned(probe.invoke("sum", b"text", stalls));
        assert_eq!((code, reply), (0, [(-10i64).to_le_bytes(), 1.0f64.to_le_bytes()].concat()));
        let added = ["increment 7 key -5", "increment_float 7 key 0.5"];
        assert_eq!(done, [&["put 7 written text 0", "delete 7 gone"], &added[..]].concat());
        let (code, _, reply, done) = returned(probe.invoke("pages", b"", stalls));
        assert_eq!((code, &reply[..]), (0, &b"keykey"[..]));
        assert_eq!(done, ["enumerate 7 \"\" 5", "enumerate 7 \"ccc\" 5"]);
    }
    let (_, pending, reply, _) = returned(probe.invoke("poll_by_hand", b"", 1));
    assert_eq!((pending, &reply[..]), (0, &[0, 1, 0, 1, 0, 1][..]));
}

#[test]
fn errors_keep_their_numbers_and_messages() {
    let (code, _, reply, _) = returned(probe().invoke("fail", &4_000_000_000u32.to_le_bytes(), 0));
    assert_eq!((code, &reply[..]), (4_000_000_000 << 32 | 1, &b"no luck"[..]));
    let (code, ..) = returned(probe().invoke("fail", b"", 0));
    assert_eq!(code, 2, "bad arguments");
}

#[test]
fn panics_tell_where_and_why() {
    let (kind, text) = abandoned(probe().invoke("panic_here", b"xyz", 0));
    let line =
        fs::read_to_string(PROBE).unwrap().lines().position(|line| line.contains("with {} bytes")).unwrap();
    assert_eq!(kind, 0);
    assert!(text.starts_with(&format!("src/lib.rs:{}: with 3 bytes [7, 7,", line + 1)), "{text}");
    assert!(text.len() <= 512);
    let (kind, text) = abandoned(probe().invoke("out_of_bounds", b"", 0));
    assert!(kind == 0 && text.contains("index out of bounds: the len is 0 but the index is 0"), "{text}");
}

#[test]
fn a_panic_in_a_panic_ends_at_once() {
    let (kind, text) = abandoned(probe().invoke("panic_twice", b"", 0));
    assert_eq!((kind, &*text), (0, "a panic while the text of a panic was written"));
}

#[test]
fn memory_that_is_used_up_ends_the_invocation() {
    let (kind, text) = abandoned(probe().invoke("use_up_memory", b"", 0));
    assert_eq!((kind, &*text), (1, "the invocation's memory is used up"));
}

const MISCOMPILED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/good/miscompiled.rs");

fn miscompiled() -> Loaded {
    let text = fs::read_to_string(MISCOMPILED).unwrap();
    let artefact = toolchain().build(&extension(&text)).unwrap();
    Loaded::open(artefact.code.object().unwrap(), toolchain().sdk_hash())
}

#[test]
fn a_bool_is_what_was_compared() {
    let (code, _, reply, _) = returned(miscompiled().invoke("wrong_bool", b"", 0));
    assert_eq!((code, &reply[..]), (0, &[27][..]));
}

#[test]
fn loops_over_a_small_array_in_turn_stay_within_it() {
    let (code, _, reply, _) = returned(miscompiled().invoke("store_in_turn", b"", 0));
    assert_eq!((code, &reply[..]), (0, &[7; 56][..]));
    let (code, _, reply, _) = returned(miscompiled().invoke("load_in_turn", b"", 0));
    assert_eq!((code, &reply[..]), (0, &[0; 32][..]));
}

#[test]
fn an_index_that_was_compared_is_compared() {
    let (code, _, reply, _) = returned(miscompiled().invoke("bounded", b"", 0));
    assert_eq!((code, reply[0], &reply[1..]), (0, 201, &[99; 16][..]));
}

#[test]
fn an_index_of_a_recursive_call_is_checked() {
    let (kind, text) = abandoned(miscompiled().invoke("recursive", b"", 0));
    assert!(text.contains("index out of bounds"), "{kind} {text}");
}

#[test]
fn an_index_behind_a_loop_is_the_one_that_was_checked() {
    let (code, _, reply, _) = returned(miscompiled().invoke("stale_exit", b"", 0));
    assert_eq!((code, reply[0], &reply[1..]), (0, 1, &[7; 8][..]));
}

#[test]
fn an_index_behind_a_minimum_is_checked() {
    let (code, _, reply, _) = returned(miscompiled().invoke("walked", b"", 0));
    assert_eq!((code, &reply[..]), (0, &[7; 16][..]));
}

#[test]
fn a_local_keeps_the_alignment_that_functions_rely_on() {
    let (code, _, reply, _) = returned(miscompiled().invoke("alignment", b"", 0));
    assert_eq!((code, &reply[..]), (0, &[7, 4][..]));
}

/// The loop runs in a process of its own, which is ended once the loop has proved itself.
#[test]
fn a_loop_that_cannot_end_reads_nothing_behind_a_slice() {
    if std::env::var_os(ENDLESS).is_some() {
        let end = miscompiled().invoke_here("endless", b"abc");
        println!("{end:?}");
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "build::run::a_loop_that_cannot_end_reads_nothing_behind_a_slice", "--nocapture"])
        .env(ENDLESS, "1")
        .spawn()
        .unwrap();
    let deadline = Instant::now() + LOOPS_FOR;
    while Instant::now() < deadline {
        assert!(child.try_wait().unwrap().is_none(), "the loop ended");
        thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A frame larger than stack and guard page must touch the guard page on its way, not what lies behind it.
#[test]
fn large_frames_are_probed() {
    if std::env::var_os(OVERFLOW).is_some() {
        let probe = probe();
        let small = thread::Builder::new().stack_size(64 << 10);
        let overflow = small.spawn(move || probe.invoke_here("deep_frame", &[0; 1000])).unwrap();
        let _ = overflow.join();
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "build::run::large_frames_are_probed", "--nocapture"])
        .env(OVERFLOW, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("has overflowed its stack"), "{text}");
    let (code, _, reply, _) = returned(probe().invoke("deep_frame", &[0; 1000], 0));
    assert_eq!((code, &reply[..]), (0, &[1][..]));
}
