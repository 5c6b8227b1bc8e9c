//! Invocations that take turns: yields, conflicts, many at once, references to what is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use guest::cycles;
use wire::{Status, TenantId};

use super::world::{TABLE, World, function};
use crate::extension::CallMode;
use crate::extension::invocation::{Invocations, LimitOverrides};
use crate::extension::log::ExtensionLog;
use crate::limits::{COMMIT_TRIES_MAX, INVOCATION_WALL_US_MAX, INVOCATIONS_PER_WORKER_MAX};
use crate::metrics::Counter;
use crate::tenant::account::Account;

function!(holds_a_value_over_yields, |db, args, reply| {
    let lent = db.get(args.table(), args.key()).await?.unwrap_or_default();
    for _ in 0..3 {
        db.yield_now().await;
    }
    reply.write(lent)?;
    reply.write(db.get(args.table(), args.key()).await?.unwrap_or_default())
});

#[test]
fn a_lent_value_stays_while_its_object_is_overwritten() {
    a_lent_value_stays(World::new());
    let mut plain = World::new();
    plain.invocations = Invocations::without_isolation().expect("stacks");
    a_lent_value_stays(plain);
}

fn a_lent_value_stays(mut world: World) {
    world.put(TABLE, b"key", b"before");
    assert!(world.start(&World::extension(holds_a_value_over_yields, CallMode::Read), b"key", b"", 1));
    assert!(world.turn().is_empty());
    for round in 0..2_000_u32 {
        world.put(TABLE, b"key", format!("after{round:05}").as_bytes());
        while world.lent.core.step() {}
    }
    assert!(world.turn().is_empty() && world.turn().is_empty());
    assert_eq!(world.turn(), [(1, (Status::Ok, b"beforeafter01999".to_vec()))]);
}

function!(echoes_after_yields, |db, args, reply| {
    let turns = args.reader().u32()?;
    for _ in 0..turns {
        db.yield_now().await;
    }
    reply.write(args.key())
});

function!(writes_then_yields, |db, args, reply| {
    db.put(args.table(), args.key(), b"written").await?;
    for _ in 0..3 {
        db.yield_now().await;
    }
    Ok(())
});

#[test]
fn with_a_session_all_ends_that_it_runs_and_leaves_nothing_behind() {
    for isolation in [true, false] {
        let mut world = World::new();
        if !isolation {
            world.invocations = Invocations::without_isolation().expect("stacks");
        }
        let extension = World::extension(writes_then_yields, CallMode::Write);
        let keys: Vec<String> = (0..6).map(|number| format!("key{number}")).collect();
        for (key, origin) in keys.iter().zip(0..4) {
            assert!(world.start(&extension, key.as_bytes(), b"", origin));
        }
        assert!(world.turn().is_empty(), "all have begun and yield");
        for (key, origin) in keys.iter().zip(0..).skip(4) {
            assert!(world.start(&extension, key.as_bytes(), b"", origin));
        }
        let mut over = world.end_of_sessions(|origin| origin % 2 == 0);
        over.sort_unstable_by_key(|(origin, _)| *origin);
        assert_eq!(over, [0, 2, 4].map(|origin| (origin, Status::BadToken)));
        assert_eq!(world.invocations.live(), 3);
        let mut well = Vec::new();
        while world.invocations.live() > 0 {
            well.extend(world.turn().into_iter().map(|(origin, (status, _))| (origin, status)));
        }
        well.sort_unstable_by_key(|(origin, _)| *origin);
        assert_eq!(well, [1, 3, 5].map(|origin| (origin, Status::Ok)));
        for (key, origin) in keys.iter().zip(0..) {
            let written = world.value(TABLE, key.as_bytes()).is_some();
            assert_eq!(written, origin % 2 == 1, "{key}");
        }
        assert_eq!(world.end_of_sessions(|_| true), []);
        if isolation {
            let summary = extension.metrics.summary();
            assert_eq!((summary.calls(), summary.errors()), (3, 0), "nothing of it is the code's doing");
        }
    }
}

#[test]
fn an_invocation_ages_from_its_first_poll_on_however_long_it_waited_for_that() {
    let mut world = World::new();
    let extension = World::extension(echoes_after_yields, CallMode::Read);
    assert!(world.start(&extension, b"key", &3_u32.to_le_bytes(), 1));
    world.lent.now_us += 2 * INVOCATION_WALL_US_MAX;
    for _ in 0..3 {
        assert_eq!(world.turn(), []);
    }
    assert_eq!(world.turn(), [(1, (Status::Ok, b"key".to_vec()))]);
}

function!(works_for_some_slices, |db, args, reply| {
    // Work and not time, which passes without a core too: some milliseconds.
    for number in 0..2_000_000_u32 {
        std::hint::black_box(number);
    }
    reply.write(b"done")
});

#[test]
fn a_preempted_invocation_ages_only_while_its_worker_has_a_core() {
    const WALL_US: u64 = 20_000;
    let mut world = World::new();
    let budget = LimitOverrides { wall_us: WALL_US, ..LimitOverrides::default() };
    world.invocations = Invocations::with_budget(budget).expect("stacks");
    assert!(world.start(&World::extension(works_for_some_slices, CallMode::Read), b"key", b"", 1));
    assert_eq!(world.turn(), [], "it is preempted");
    std::thread::sleep(Duration::from_micros(2 * WALL_US));
    world.lent.now_us += 2 * WALL_US;
    let mut ended = world.turn();
    while ended.is_empty() {
        ended = world.turn();
    }
    assert_eq!(ended, [(1, (Status::Ok, b"done".to_vec()))]);
}

const LOST_AT_FIRST: Duration = Duration::from_millis(40);
/// Whether the core was lost.
static IS_LOST: AtomicBool = AtomicBool::new(false);

function!(loses_its_core_in_its_first_poll, |db, args, reply| {
    // The signal of a thread without a core arrives when it has one again.
    guest::signal::block();
    std::thread::sleep(LOST_AT_FIRST);
    IS_LOST.store(true, Ordering::Relaxed);
    guest::signal::unblock();
    for number in 0..2_000_000_u32 {
        std::hint::black_box(number);
    }
    reply.write(b"done")
});

#[test]
fn what_a_worker_lost_during_the_first_poll_of_an_invocation_makes_that_no_older() {
    loop {
        IS_LOST.store(false, Ordering::Relaxed);
        let mut world = World::new();
        let budget = LimitOverrides { wall_us: 20_000, ..LimitOverrides::default() };
        world.invocations = Invocations::with_budget(budget).expect("stacks");
        let extension = World::extension(loses_its_core_in_its_first_poll, CallMode::Read);
        assert!(world.start(&extension, b"key", b"", 1));
        assert_eq!(world.turn(), [], "it is preempted");
        let is_lost = IS_LOST.load(Ordering::Relaxed);
        world.lent.now_us += if is_lost { LOST_AT_FIRST.as_micros() as u64 } else { 0 };
        let mut ended = world.turn();
        while ended.is_empty() {
            ended = world.turn();
        }
        assert_eq!(ended, [(1, (Status::Ok, b"done".to_vec()))]);
        // If other threads had its core until its slice was over, it was preempted before.
        if is_lost {
            return;
        }
    }
}

#[test]
fn what_a_worker_lost_between_two_polls_makes_one_that_yielded_no_older() {
    const LOST: Duration = Duration::from_millis(40);
    let mut world = World::new();
    let budget = LimitOverrides { wall_us: 20_000, ..LimitOverrides::default() };
    world.invocations = Invocations::with_budget(budget).expect("stacks");
    let extension = World::extension(echoes_after_yields, CallMode::Read);
    assert!(world.start(&extension, b"key", &3_u32.to_le_bytes(), 1));
    assert_eq!(world.turn(), [], "it yields");
    std::thread::sleep(LOST);
    world.lent.now_us += LOST.as_micros() as u64;
    // It yields twice more, and other threads may have the core until its slice is over.
    let mut ended = world.turn();
    while ended.is_empty() {
        ended = world.turn();
    }
    assert_eq!(ended, [(1, (Status::Ok, b"key".to_vec()))]);
}

#[test]
fn a_preempted_invocation_goes_on_while_new_ones_of_its_tenant_come_and_come() {
    const NEW_ONES: u64 = 32;
    let mut world = World::new();
    world.invocations = Invocations::with_budget(LimitOverrides::default()).expect("stacks");
    assert!(world.start(&World::extension(works_for_some_slices, CallMode::Read), b"key", b"", 0));
    assert_eq!(world.turn(), [], "it is preempted");
    let (short, mut turns) = (World::extension(echoes_after_yields, CallMode::Read), 0);
    loop {
        while (world.invocations.live() as u64) < NEW_ONES {
            assert!(world.start(&short, b"key", &0_u32.to_le_bytes(), 1));
        }
        turns += 1;
        assert!(turns < 10_000, "it waits behind new ones for ever");
        if world.turn().iter().any(|(origin, _)| *origin == 0) {
            break;
        }
    }
}

static LONG_YIELDS: AtomicU32 = AtomicU32::new(0);
const LONG_YIELD_US: u64 = 500;

function!(works_and_yields_for_ever, |db, args, reply| {
    loop {
        LONG_YIELDS.fetch_add(1, Ordering::Relaxed);
        let until = cycles::now() + cycles::of_us(LONG_YIELD_US);
        while cycles::now() < until {}
        db.yield_now().await;
    }
});

#[test]
fn a_turn_ends_after_a_slice_also_when_all_that_it_polls_yield_within_theirs() {
    const MANY: u64 = 100;
    let mut world = World::new();
    let slice_us = MANY * LONG_YIELD_US / 4;
    let budget = LimitOverrides { slice_us, cpu_us: u64::MAX, ..LimitOverrides::default() };
    world.invocations = Invocations::with_budget(budget).expect("stacks");
    let extension = World::extension(works_and_yields_for_ever, CallMode::Read);
    for origin in 0..MANY {
        assert!(world.start(&extension, b"key", b"", origin));
    }
    assert!(world.turn().is_empty());
    let polls = u64::from(LONG_YIELDS.load(Ordering::Relaxed));
    assert!((1..=MANY / 4 + 1).contains(&polls), "{polls} polls of {LONG_YIELD_US} us in one turn");
    assert_eq!(world.end_all().len() as u64, MANY);
}

#[test]
fn without_isolation_all_end_with_their_answers_in_the_order_in_which_they_came() {
    let mut world = World::new();
    world.invocations = Invocations::without_isolation().expect("stacks");
    let extension = World::extension(echoes_after_yields, CallMode::Read);
    for origin in 0..100_u64 {
        let turns = (origin % 2) as u32;
        assert!(world.start(&extension, &origin.to_le_bytes(), &turns.to_le_bytes(), origin));
    }
    for turn in 0..2 {
        let expected: Vec<_> = (0..100).filter(|origin| origin % 2 == turn).collect();
        assert_eq!(world.turn().iter().map(|(origin, _)| *origin).collect::<Vec<u64>>(), expected);
    }
    assert!(world.start(&extension, b"key", &1_u32.to_le_bytes(), 7));
    assert_eq!(world.end_all(), [Status::Unavailable]);
    assert_eq!(world.invocations.live(), 0);
}

#[test]
fn many_invocations_take_turns_and_keep_apart() {
    let mut world = World::new();
    let extension = World::extension(echoes_after_yields, CallMode::Read);
    for origin in 0..500_u64 {
        let turns = (origin % 5) as u32;
        assert!(world.start(&extension, &origin.to_le_bytes(), &turns.to_le_bytes(), origin));
    }
    for turn in 0..5 {
        let ended = world.turn();
        assert_eq!(ended.len(), 100);
        for (origin, answer) in ended {
            assert_eq!(origin % 5, turn);
            assert_eq!(answer, (Status::Ok, origin.to_le_bytes().to_vec()));
        }
    }
    assert_eq!(world.invocations.live(), 0);
    assert_eq!(world.lent.metrics.value(Counter::InvocationsSucceeded), 500);
}

function!(adds_one_slowly, |db, args, reply| {
    let table = args.table();
    let before = db.get(table, args.key()).await?.map_or(0, |value| value[0]);
    db.yield_now().await;
    db.put(table, args.key(), &[before + 1]).await?;
    reply.u8(before + 1)
});

#[test]
fn a_commit_that_meets_a_conflict_starts_over_and_counts_once() {
    let mut world = World::new();
    let extension = World::extension(adds_one_slowly, CallMode::Write);
    assert!(world.start(&extension, b"n", b"", 1) && world.start(&extension, b"n", b"", 2));
    let mut ended = Vec::new();
    for _ in 0..6 {
        ended.extend(world.turn());
    }
    assert_eq!(ended, [(1, (Status::Ok, vec![1])), (2, (Status::Ok, vec![2]))]);
    assert_eq!(world.value(TABLE, b"n"), Some(vec![2]));
    assert_eq!(world.lent.metrics.value(Counter::CommitConflicts), 1);
}

#[test]
fn many_that_overwrite_what_the_others_read_all_end_well() {
    let mut world = World::new();
    let extension = World::extension(adds_one_slowly, CallMode::Write);
    let count = 6 * COMMIT_TRIES_MAX as usize;
    assert!((0..count).all(|id| world.start(&extension, b"n", b"", id as u64)));
    let mut ended = Vec::new();
    for _ in 0..4 * count {
        ended.extend(world.turn().into_iter().map(|(_, (status, _))| status));
    }
    assert_eq!(ended, vec![Status::Ok; count]);
    assert_eq!(world.value(TABLE, b"n"), Some(vec![count as u8]));
}

#[test]
fn one_that_always_meets_a_conflict_is_told_so_and_writes_nothing() {
    let mut world = World::new();
    assert!(world.start(&World::extension(adds_one_slowly, CallMode::Write), b"n", b"", 1));
    let mut ended = Vec::new();
    for turn in 0..COMMIT_TRIES_MAX * 2 {
        assert!(ended.is_empty(), "turn {turn}");
        world.put(TABLE, b"n", &[turn as u8]);
        ended = world.turn();
    }
    assert_eq!(ended, [(1, (Status::Conflict, Vec::new()))]);
    assert_eq!(world.value(TABLE, b"n"), Some(vec![COMMIT_TRIES_MAX as u8 * 2 - 1]));
}

#[test]
fn an_absent_object_that_appears_is_a_conflict() {
    let mut world = World::new();
    assert!(world.start(&World::extension(adds_one_slowly, CallMode::Write), b"n", b"", 1));
    assert!(world.turn().is_empty());
    world.put(TABLE, b"n", &[10]);
    assert!(world.turn().is_empty());
    assert!(world.turn().is_empty());
    assert_eq!(world.turn(), [(1, (Status::Ok, vec![11]))]);
}

function!(yields_once, |db, args, reply| {
    db.yield_now().await;
    Ok(())
});

#[test]
fn however_many_tenants_crowd_a_worker_there_is_room_for_the_next() {
    let mut world = World::new();
    let first = World::extension(yields_once, CallMode::Read);
    let mut all = 0;
    for tenant in 1..=10 {
        let account = Account::native(TenantId(tenant));
        let extension = Arc::new(first.granted(tenant, account, "test", Arc::new(ExtensionLog::new())));
        let mut taken = 0;
        while world.start(&extension, b"", b"", 0) {
            taken += 1;
        }
        assert_eq!(taken, (INVOCATIONS_PER_WORKER_MAX - all).div_ceil(2), "tenant {tenant}");
        all += taken;
    }
    while all > 0 {
        all -= world.turn().len();
    }
    assert!(world.start(&first, b"", b"", 0));
}

#[test]
fn a_retired_extension_is_let_go_once_its_invocations_have_ended() {
    let mut world = World::new();
    let extension = World::extension(yields_once, CallMode::Read);
    for origin in 0..20 {
        assert!(world.start(&extension, b"", b"", origin));
    }
    assert!(world.turn().is_empty());
    extension.retire();
    assert!(Arc::strong_count(&extension) > 1);
    assert_eq!(world.turn().len(), 20);
    assert_eq!(Arc::strong_count(&extension), 1);

    let idle = World::extension(yields_once, CallMode::Read);
    assert_eq!(world.call(&idle, b"", b"").0, Status::Ok);
    assert_eq!(Arc::strong_count(&idle), 1, "the next one may be of another extension");
    assert_eq!(world.call(&idle, b"", b"").0, Status::Ok);
    assert!(Arc::strong_count(&idle) > 1, "two were of the same");
    idle.retire();
    assert!(world.turn().is_empty());
    assert_eq!(Arc::strong_count(&idle), 1);
}

#[test]
fn a_table_that_is_dropped_under_an_invocation_is_unknown_at_its_commit() {
    let mut world = World::new();
    assert!(world.start(&World::extension(adds_one_slowly, CallMode::Write), b"n", b"", 1));
    assert!(world.turn().is_empty());
    world.lent.tables.remove(TABLE);
    assert_eq!(world.turn()[0].1.0, Status::UnknownTable);
}

#[test]
fn a_worker_that_stops_answers_all_that_have_not_ended() {
    let mut world = World::new();
    let extension = World::extension(yields_once, CallMode::Read);
    for origin in 0..3 {
        assert!(world.start(&extension, b"", b"", origin));
    }
    assert!(world.turn().is_empty());
    assert_eq!(world.end_all(), vec![Status::Unavailable; 3]);
    assert_eq!(world.invocations.live(), 0);
}
