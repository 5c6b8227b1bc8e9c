//! Tests of the memory that invocations hold and leave behind: bounded per tenant and in total, and returned by all.
//!
//! The kernel reports which memory is backed by pages, for slots without an invocation.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sandstorm::Error;
use wire::{Status, TenantId};

use super::world::{Answer, TABLE, World, function};
use crate::extension::allowance::Limit;
use crate::extension::host::SERVICES;
use crate::extension::invocation::{Invocations, LimitOverrides};
use crate::extension::log::ExtensionLog;
use crate::extension::{CallMode, Extension};
use crate::limits::MEMORY_PART_BYTES_KEPT;
use crate::metrics::Counter;
use crate::tenant::account::Account;

/// Maximum bytes that one slot keeps.
const SLOT_KEEPS: usize = 4 * MEMORY_PART_BYTES_KEPT;
/// Maximum bytes that its lists keep.
const LISTS_KEEP: usize = 40 << 10;
const MIB: usize = 1 << 20;

/// Memory of the running invocation's arena, written to.
fn touched(bytes: usize) -> &'static [u8] {
    // SAFETY: what the glue's allocator does when the author's code allocates.
    let address = unsafe { (SERVICES.allocate)(bytes, 8) };
    assert!(!address.is_null(), "more than the arena has");
    // SAFETY: just allocated, with this length.
    unsafe { address.write_bytes(7, bytes) };
    // SAFETY: as above; the function forgets the slice before it ends.
    unsafe { slice::from_raw_parts(address, bytes) }
}

/// A world where tenants take turns of 100 ms, with this much to be held, and to be kept warm.
fn world_of(held_bytes: usize, warm_bytes: usize) -> World {
    let mut world = World::new();
    let times =
        LimitOverrides { slice_us: 100_000, cpu_us: u64::MAX, yields: u32::MAX, ..LimitOverrides::default() };
    let budget = LimitOverrides { held_bytes, warm_bytes, ..times };
    world.invocations = Invocations::with_budget(budget).expect("stacks");
    world
}

/// The extension as another tenant has it.
fn granted(extension: &Extension, tenant: u32) -> Arc<Extension> {
    let account = Account::native(TenantId(tenant));
    Arc::new(extension.granted(tenant, account, "test", Arc::new(ExtensionLog::new())))
}

function!(does_much_at_the_first_try, |db, args, reply| {
    if db.get(args.table(), args.key()).await?.is_none() {
        let bytes = touched(600_000);
        for _ in 0..9 {
            reply.write(&bytes[..100_000])?;
            db.put(args.table(), b"much", &bytes[..100_000]).await?;
        }
        db.yield_now().await;
    }
    db.put(args.table(), args.key(), b"little").await
});

#[test]
fn what_a_try_before_a_conflict_touched_is_given_back() {
    let mut world = World::new();
    let extension = World::extension(does_much_at_the_first_try, CallMode::Write);
    assert!(world.start(&extension, b"key", b"", 1));
    assert!(world.turn().is_empty());
    world.put(TABLE, b"key", b"of somebody else");
    assert!(world.turn().is_empty(), "a conflict");
    assert_eq!(world.turn(), [(1, (Status::Ok, Vec::new()))]);
    assert_eq!(world.lent.metrics.value(Counter::CommitConflicts), 1);
    assert!(world.invocations.kept_bytes().0 <= SLOT_KEEPS);
}

function!(replies_and_spins, |db, args, reply| {
    while reply.write(&[7; 1024]).is_ok() {}
    loop {
        std::hint::spin_loop();
    }
});

#[test]
fn the_reply_of_one_that_is_killed_while_it_is_parked_is_given_back() {
    let mut world = World::new();
    let budget = LimitOverrides { slice_us: 50, cpu_us: u64::MAX, ..LimitOverrides::default() };
    world.invocations = Invocations::with_budget(budget).expect("stacks");
    assert!(world.start(&World::extension(replies_and_spins, CallMode::Read), b"key", b"", 1));
    while world.lent.metrics.value(Counter::Preemptions) < 50 {
        assert!(world.turn().is_empty());
    }
    assert_eq!(world.end_all(), [Status::Unavailable]);
    assert!(world.invocations.kept_bytes().0 <= SLOT_KEEPS);
}

function!(drops_most_of_its_reply, |db, args, reply| {
    while reply.write(&[7; 1024]).is_ok() {}
    reply.truncate(3);
    Ok(())
});

#[test]
fn what_was_dropped_of_a_reply_is_given_back() {
    let mut world = World::new();
    assert_eq!(world.call_once(drops_most_of_its_reply, CallMode::Read, b""), (Status::Ok, vec![7; 3]));
    assert!(world.invocations.kept_bytes().0 <= SLOT_KEEPS);
}

function!(reads_and_writes_many, |db, args, reply| {
    for number in 0..2_000_u64 {
        db.get(args.table(), &number.to_le_bytes()).await?;
    }
    for number in 0..1_000_u64 {
        db.put(args.table(), &number.to_le_bytes(), b"value").await?;
    }
    Ok(())
});

function!(reads_and_writes_some, |db, args, reply| {
    for number in 0..50_u64 {
        db.get(args.table(), &number.to_le_bytes()).await?;
        db.put(args.table(), &number.to_le_bytes(), b"value").await?;
    }
    Ok(())
});

#[test]
fn what_the_lists_of_a_big_transaction_grew_to_is_given_back_and_those_of_others_stay() {
    let mut world = World::new();
    for number in 0..1_000_u64 {
        world.put(TABLE, &number.to_le_bytes(), b"before");
        while world.lent.core.step() {}
    }
    for _ in 0..3 {
        assert_eq!(world.call_once(reads_and_writes_many, CallMode::Write, b"").0, Status::Ok);
        assert!(world.invocations.kept_bytes().1 <= LISTS_KEEP, "{:?}", world.invocations.kept_bytes());
    }
    assert_eq!(world.call_once(reads_and_writes_some, CallMode::Write, b"").0, Status::Ok);
    let kept = world.invocations.kept_bytes().1;
    assert!(kept > 50 * 64, "{kept}");
    assert_eq!(world.call_once(reads_and_writes_some, CallMode::Write, b"").0, Status::Ok);
    assert_eq!(world.invocations.kept_bytes().1, kept);
}

function!(touches_and_yields, |db, args, reply| {
    touched(60_000);
    reply.write(&[7; 10_000])?;
    db.yield_now().await;
    Ok(())
});

#[test]
fn slots_that_are_warmed_one_after_the_other_keep_no_more_than_a_bound() {
    let mut world = world_of(256 * MIB, MIB);
    let extension = World::extension(touches_and_yields, CallMode::Read);
    for _ in 0..4 {
        for origin in 0..300 {
            assert!(world.start(&extension, b"key", b"", origin));
        }
        while world.invocations.live() > 0 {
            world.turn();
        }
        let kept = world.invocations.kept_bytes().0;
        assert!((MIB - SLOT_KEEPS..=MIB).contains(&kept), "{kept}");
    }
}

const HELD_EACH: usize = 256 << 10;
static BEGUN: AtomicU64 = AtomicU64::new(0);

function!(holds_and_yields_for_ever, |db, args, reply| {
    BEGUN.fetch_add(1, Ordering::Relaxed);
    touched(HELD_EACH);
    loop {
        db.yield_now().await;
    }
});

/// Starts this many invocations and lets each begin; returns what the live ones hold, and the answers of the others.
fn crowd(world: &mut World, extension: &Arc<Extension>, count: u64) -> (usize, Vec<Answer>) {
    let (before, begun) = (world.invocations.live(), BEGUN.load(Ordering::Relaxed));
    for origin in 0..count {
        assert!(world.start(extension, b"key", b"", origin));
    }
    let mut ended = Vec::new();
    while BEGUN.load(Ordering::Relaxed) < begun + count {
        ended.extend(world.turn().into_iter().map(|(_, answer)| answer));
    }
    ((world.invocations.live() - before) * HELD_EACH, ended)
}

#[test]
fn a_tenant_holds_half_of_what_others_leave_and_beyond_it_is_told_so_while_others_go_on() {
    const MANY: u64 = 20;
    let mut world = world_of(4 * MIB, 4 * MIB);
    let first = World::extension(holds_and_yields_for_ever, CallMode::Read);
    let healthy = granted(&World::extension(touches_and_yields, CallMode::Read), 4);
    for _ in 0..2 {
        let mut all = 0;
        for tenant in 1..=3 {
            let (held, ended) = crowd(&mut world, &granted(&first, tenant), MANY);
            // Some pages more each; and a stack, if its thread lost the core for a slice.
            let share = (4 * MIB - all) / 2;
            assert!((HELD_EACH..=share).contains(&held), "{held} bytes of {share}");
            assert!(ended.len() as u64 >= MANY - 8);
            for (status, body) in ended {
                let text = String::from_utf8(body).expect("text");
                assert_eq!(status, Status::ExtensionKilled, "{text}");
                assert!(text.starts_with("the limit held_bytes_of_a_core = "), "{text}");
            }
            all += held;
        }
        assert!(world.start(&healthy, b"key", b"", 100));
        let mut answers = Vec::new();
        while answers.is_empty() {
            answers = world.turn();
        }
        assert_eq!(answers, [(100, (Status::Ok, vec![7; 10_000]))]);
        assert!(!world.end_all().is_empty() && world.invocations.live() == 0);
    }
    assert!(world.lent.metrics.value(Counter::KilledHeld) >= 2 * 3 * (MANY - 8));
}

function!(echoes, |db, args, reply| {
    if args.bytes().len() < args.key().len() {
        return Err(Error::BadArguments);
    }
    reply.u64(args.bytes().len() as u64)
});

/// The limit for which one is not started.
fn held_off(world: &mut World, extension: &Arc<Extension>, arguments: &[u8]) -> Option<Limit> {
    let pin = world.lent.core.pin();
    let environment = world.lent.environment(&pin);
    let started = world.invocations.start(&environment, extension, 0, TABLE, b"key", arguments, 1);
    let refused = started.err()?;
    assert_eq!(refused.status, Status::Throttled);
    refused.limit
}

#[test]
fn large_arguments_that_wait_are_counted_and_beyond_the_bound_held_off_while_small_ones_come_in() {
    let mut world = world_of(8 * MIB, 4 * MIB);
    let first = World::extension(echoes, CallMode::Read);
    let second = granted(&first, 2);
    let large = vec![7; MIB];
    for _ in 0..3 {
        let mut taken = 0;
        while held_off(&mut world, &first, &large).is_none() {
            taken += 1;
        }
        assert_eq!(taken, 3);
        assert_eq!(held_off(&mut world, &first, &large), Some(Limit::HeldBytes));
        assert_eq!(held_off(&mut world, &first, b"small"), None);
        assert_eq!(held_off(&mut world, &second, &large), None);
        assert_eq!(held_off(&mut world, &second, &large), None);
        let mut ended = Vec::new();
        while world.invocations.live() > 0 {
            ended.extend(world.turn());
        }
        assert_eq!(ended.len(), 6);
        assert!(ended.iter().all(|(_, (status, _))| *status == Status::Ok));
    }
    assert!(world.invocations.kept_bytes().0 <= 6 * SLOT_KEEPS);
}
