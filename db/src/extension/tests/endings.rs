//! Tests that failing invocations end as specified and do not affect the next one.

use std::hint::black_box;

use guest::running;
use sandstorm::abi::RawSlice;
use sandstorm::{Error, Level};
use wire::Status;

use super::world::{TABLE, World, function};
use crate::extension::CallMode;
use crate::extension::host::SERVICES;
use crate::limits::{ARENA_BYTES, EXTENSION_LOG_LINES_MAX, LAST_WORDS_BYTES_MAX};
use crate::metrics::Counter;

function!(noop, |db, args, reply| { Ok(()) });

function!(fails, |db, args, reply| {
    reply.write(b"why: ")?;
    reply.write(args.key())?;
    Err(Error::Application(42))
});

function!(fails_with_all, |db, args, reply| {
    while reply.write(&[7; 1024]).is_ok() {}
    Err(Error::Application(1))
});

fn assert_healthy(world: &mut World) {
    assert_eq!(world.call_once(noop, CallMode::Read, b""), (Status::Ok, Vec::new()));
    assert_eq!(world.invocations.live(), 0);
}

#[test]
fn an_error_brings_its_number_and_the_reply_as_its_message() {
    let mut world = World::new();
    let (status, body) = world.call_once(fails, CallMode::Read, b"a reason");
    assert_eq!(status, Status::ExtensionError);
    let failure = wire::reply::ExtensionFailure::decode(&body).expect("a failure");
    assert_eq!((failure.code, failure.message), (42, &b"why: a reason"[..]));
    let (status, body) = world.call_once(fails_with_all, CallMode::Read, b"");
    assert_eq!(status, Status::ExtensionError);
    assert_eq!(body.len(), wire::limits::REPLY_BYTES_MAX);
    assert_healthy(&mut world);
}

function!(floods_the_reply, |db, args, reply| {
    loop {
        reply.write(&[1; 1000])?;
    }
});

#[test]
fn a_reply_beyond_its_limit_is_refused() {
    let mut world = World::new();
    let (status, body) = world.call_once(floods_the_reply, CallMode::Read, b"");
    assert_eq!(status, Status::ReplyTooLarge);
    let (most, text) = (wire::limits::REPLY_BYTES_MAX, String::from_utf8(body).expect("text"));
    let asked = (most / 1000 + 1) * 1000;
    let expected =
        format!("the limit invocation_reply_bytes = {most} was reached: {asked} used or requested in ");
    assert!(text.starts_with(&expected), "{text}");
    assert_healthy(&mut world);
}

#[inline(never)]
fn recurse(depth: u64) -> u64 {
    if depth == 0 { 0 } else { black_box(depth) + recurse(depth - 1) }
}

function!(recurses, |db, args, reply| {
    db.put(args.table(), b"key", b"value").await?;
    reply.u64(recurse(u64::MAX))
});

function!(has_a_huge_frame, |db, args, reply| {
    #[inline(never)]
    fn huge() -> u8 {
        let mut frame = [0_u8; 8 << 20];
        black_box(&mut frame)[77]
    }
    reply.u8(huge())
});

#[inline(never)]
fn recurse_to_the_end_of_the_stack(left: usize) -> u64 {
    let here = black_box(0_u8);
    if (&raw const here) as usize - running::with(|running| running.bounds().0) > left {
        return black_box(recurse_to_the_end_of_the_stack(left));
    }
    // SAFETY: the host's clock is a host call without arguments.
    unsafe { (crate::extension::host::HOST.now_ms)(std::ptr::null_mut()) }
}

function!(calls_the_host_from_deep_down, |db, args, reply| {
    reply.u64(recurse_to_the_end_of_the_stack(4096))
});

#[test]
fn a_stack_that_is_used_up_ends_the_invocation_alone() {
    let mut world = World::new();
    for function in [recurses, has_a_huge_frame, calls_the_host_from_deep_down] {
        for _ in 0..50 {
            let (status, body) = world.call_once(function, CallMode::Write, b"");
            assert_eq!(status, Status::ExtensionStackOverflow);
            let text = String::from_utf8(body).expect("text");
            let expected = "the limit stack_bytes = 65536 was reached: no stack left for another call in ";
            assert!(text.starts_with(expected), "{text}");
            assert_healthy(&mut world);
        }
    }
    assert_eq!(world.value(TABLE, b"key"), None);
    assert_eq!(world.lent.metrics.value(Counter::InvocationsOutOfMemory), 150);
}

function!(reads_where_no_memory_is, |db, args, reply| {
    db.put(args.table(), b"key", b"value").await?;
    // SAFETY: deliberately unsound, like the code of a compiler that is wrong: the read faults.
    reply.u64(unsafe { black_box(64 as *const u64).read_volatile() })
});

#[test]
fn wrong_code_that_faults_ends_the_invocation_alone() {
    let mut world = World::new();
    for _ in 0..50 {
        let (status, body) = world.call_once(reads_where_no_memory_is, CallMode::Write, b"");
        assert_eq!((status, body.as_slice()), (Status::ExtensionPanicked, &b""[..]));
        assert_healthy(&mut world);
    }
    assert_eq!(world.value(TABLE, b"key"), None, "its writes are gone");
}

function!(runs_out_of_memory, |db, args, reply| {
    db.put(args.table(), b"key", b"value").await?;
    let mut allocated = 0;
    // SAFETY: what the glue's allocator does when the author's code allocates.
    while !unsafe { (SERVICES.allocate)(1000, 8) }.is_null() {
        allocated += 1000;
    }
    assert!(allocated > ARENA_BYTES / 2);
    // SAFETY: what the glue does then; the text is constant.
    unsafe { (SERVICES.abandon)(1, RawSlice::of(b"no more")) }
});

function!(panics, |db, args, reply| {
    db.put(args.table(), b"key", b"value").await?;
    reply.write(args.bytes())?;
    // SAFETY: what the glue's panic handler does; the text is a part of the reply.
    unsafe { (SERVICES.abandon)((SERVICES.begin_panic)(), RawSlice::of(&reply.written()[1..])) }
});

#[test]
fn panics_and_memory_that_is_used_up_bring_their_text_and_leave_no_write_behind() {
    let mut world = World::new();
    let panicking = World::extension(panics, CallMode::Write);
    for _ in 0..50 {
        let (status, body) = world.call_once(runs_out_of_memory, CallMode::Write, b"");
        let text = String::from_utf8(body).expect("text");
        assert_eq!(status, Status::ExtensionOutOfMemory);
        let limit = "the limit invocation_arena_bytes = 1048576 was reached: ";
        let asked = text.strip_prefix(&format!("no more: {limit}")).and_then(|rest| rest.split(' ').next());
        let asked: usize = asked.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{text}"));
        assert!(asked > ARENA_BYTES && asked <= ARENA_BYTES + 1000, "{text}");
        let (status, body) = world.call(&panicking, b"", b"_for a reason");
        assert_eq!((status, body), (Status::ExtensionPanicked, b"for a reason".to_vec()));
        let (status, body) = world.call(&panicking, b"", &[b'x'; 10_000]);
        assert_eq!((status, body), (Status::ExtensionPanicked, vec![b'x'; LAST_WORDS_BYTES_MAX]));
        assert_healthy(&mut world);
    }
    assert_eq!(world.value(TABLE, b"key"), None);
    assert_eq!(world.lent.metrics.value(Counter::InvocationsPanicked), 100);
}

function!(yields_for_ever, |db, args, reply| {
    loop {
        db.yield_now().await;
    }
});

#[test]
fn one_that_yields_for_ever_is_ended_at_a_limit() {
    let mut world = World::new();
    let (status, body) = world.call_once(yields_for_ever, CallMode::Read, b"");
    assert_eq!(status, Status::ExtensionKilled);
    assert!(String::from_utf8(body).expect("text").contains("yield"));
    assert_healthy(&mut world);
}

#[test]
fn one_that_grows_too_old_is_ended_when_it_yields() {
    let mut world = World::new();
    assert!(world.start(&World::extension(yields_for_ever, CallMode::Read), b"", b"", 1));
    assert!(world.turn().is_empty());
    world.lent.now_us += crate::limits::INVOCATION_WALL_US_MAX + 1;
    let ended = world.turn();
    assert_eq!(ended[0].1.0, Status::ExtensionKilled);
    assert_healthy(&mut world);
}

function!(reads_for_ever, |db, args, reply| {
    loop {
        db.get(args.table(), args.key()).await?;
    }
});

#[test]
fn one_that_reads_for_ever_meets_a_limit() {
    let mut world = World::new();
    assert_eq!(world.call_once(reads_for_ever, CallMode::Read, b"key").0, Status::LimitExceeded);
    assert_healthy(&mut world);
}

function!(floods_the_log, |db, args, reply| {
    for number in 0..1000 {
        db.log(Level::Warning, format_args!("line {number}"));
    }
    reply.u64(db.now_ms())
});

#[test]
fn log_lines_reach_the_tenant_up_to_a_number() {
    let mut world = World::new();
    let extension = World::extension(floods_the_log, CallMode::Read);
    let (status, body) = world.call(&extension, b"", b"");
    assert_eq!((status, body), (Status::Ok, 1_700_000_000_000_u64.to_le_bytes().to_vec()));
    let lines = extension.log.lines();
    assert_eq!(lines.len(), EXTENSION_LOG_LINES_MAX as usize);
    assert_eq!((lines[3].text.as_str(), lines[3].level, lines[3].extension), ("line 3", 1, 9));
}

function!(answers_an_unknown_code, |db, args, reply| { Err(Error::Unknown) });

#[test]
fn every_error_of_the_sdk_has_its_status() {
    let mut world = World::new();
    let (status, text) = world.call_once(answers_an_unknown_code, CallMode::Read, b"");
    let expected = "the code 19 is none of the SDK's: returned in test@1 function";
    assert_eq!((status, String::from_utf8_lossy(&text)), (Status::ExtensionPanicked, expected.into()));
    function!(bad_arguments, |db, args, reply| { args.reader().u64().map(|_| ()) });
    let takes = b"Arguments: a shape".to_vec();
    assert_eq!(world.call_once(bad_arguments, CallMode::Read, b""), (Status::Malformed, takes));
    function!(not_permitted, |db, args, reply| { Err(Error::NotPermitted) });
    assert_eq!(world.call_once(not_permitted, CallMode::Read, b"").0, Status::NotPermitted);
}
