//! Seeded tests of migrations: a source and a target over a network that loses, duplicates and reorders messages, with
//! clients that write, aborts at any moment, and the death of either side; and tests of the encoding of messages.
//!
//! `SPLINTER_SEED` selects one seed; `SPLINTER_FULL=1` runs many thousands.

mod world;

use world::{Trouble, World};

use super::{
    BadMessage, Copied, Left, Message, MigrationMode, MigrationPhase, PullCursor, PullSpan, Source,
    SourceAction, SourceEnd, SourceInput, SourceOutput, Target, TargetAction, TargetEnd, TargetInput,
    TargetOutput,
};

fn seeds() -> Vec<u64> {
    let given = std::env::var("SPLINTER_SEED").ok().and_then(|seed| seed.parse().ok());
    let is_full = std::env::var_os("SPLINTER_FULL").is_some();
    // Each long run has others.
    let (first, count) = if is_full { (fastrand::u64(..u64::MAX / 2), 5_000) } else { (0, 100) };
    given.map_or_else(|| (first..first + count).collect(), |seed| vec![seed])
}

fn each_seed(trouble: impl Fn(&mut fastrand::Rng) -> Trouble) -> Vec<World> {
    let modes =
        [(MigrationMode::Rocksteady, false), (MigrationMode::PreCopy, false), (MigrationMode::PreCopy, true)];
    modes.map(|mode| each_seed_of(mode, &trouble)).into_iter().flatten().collect()
}

/// Runs the worlds of all seeds, of a table in memory or on the disk. Pre-copy sends everything at least twice, so it runs a tenth of them.
fn each_seed_of(
    (mode, is_durable): (MigrationMode, bool),
    trouble: impl Fn(&mut fastrand::Rng) -> Trouble,
) -> Vec<World> {
    let run = |seed| {
        println!("{mode:?}, durable {is_durable}: SPLINTER_SEED={seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let trouble = trouble(&mut random);
        let mut world = World::new(random, trouble, (mode, is_durable));
        world.run();
        world
    };
    let share = if mode == MigrationMode::PreCopy { 10 } else { 1 };
    let all = seeds();
    let count = all.len().div_ceil(share);
    all.into_iter().take(count).map(run).collect()
}

#[test]
fn a_tablet_moves_whole_while_it_is_written_to() {
    for world in each_seed(|_| Trouble::None) {
        assert!(world.has_moved(), "nobody stood in its way");
    }
}

#[test]
fn an_abort_at_any_moment_leaves_everything_with_one_owner() {
    let worlds = each_seed(|random| Trouble::Abort(random.u64(0..2_500_000)));
    if worlds.len() > 1 {
        let moved = worlds.iter().filter(|world| world.has_moved()).count();
        assert!(moved > 0 && moved < worlds.len(), "some aborts come too late, and some do not");
    }
}

#[test]
fn the_death_of_the_source_leaves_the_target_with_what_it_has() {
    each_seed(|random| Trouble::SourceDies(random.u64(0..2_500_000)));
}

#[test]
fn the_death_of_the_target_leaves_the_source_with_what_it_had() {
    each_seed(|random| Trouble::TargetDies(random.u64(0..2_500_000)));
}

#[test]
fn a_disk_that_fails_before_it_has_everything_leaves_the_source_with_what_it_had() {
    for world in each_seed_of((MigrationMode::PreCopy, true), |_| Trouble::DiskFails) {
        assert!(!world.has_moved(), "the disk does not have it");
    }
}

#[test]
fn a_side_that_is_cut_off_from_the_records_serves_nobody_when_the_other_one_may() {
    let cut_off = |random: &mut fastrand::Rng| {
        let from_us = random.u64(0..2_000_000);
        Trouble::CutOff {
            is_source: random.bool(),
            from_us,
            for_us: random.u64(0..3_000_000),
            aborts: random.bool(),
        }
    };
    let worlds = each_seed(cut_off);
    if worlds.len() > 1 {
        assert!(worlds.iter().any(|world| world.is_lost), "some are taken for dead");
        assert!(worlds.iter().any(|world| world.closed > 0), "some stop serving for a while");
    }
}

#[test]
fn a_death_after_an_abort_leaves_one_owner() {
    each_seed(|random| {
        Trouble::AbortAndDeath(random.u64(0..2_000_000), random.u64(0..200_000), random.bool())
    });
}

#[test]
fn a_side_whose_record_others_have_removed_is_over_though_nobody_answers_it() {
    let mut out = Vec::new();
    let mut target = Target::new(MigrationMode::Rocksteady, false);
    target.step(0, TargetInput::Phase(MigrationPhase::Finished), &mut out);
    assert!(!target.is_over(), "the source is to discard");
    target.step(1, TargetInput::Forgotten(MigrationPhase::Finished), &mut out);
    assert!(target.is_over());

    let (mut source, mut out) = (Source::default(), Vec::new());
    source.step(SourceInput::Admitted, &mut out);
    let ends = [SourceEnd::Cut(7), SourceEnd::Discarded];
    for (phase, end) in [MigrationPhase::Moving, MigrationPhase::Finished].into_iter().zip(ends) {
        source.step(SourceInput::Phase(phase), &mut out);
        source.step(SourceInput::End(end), &mut out);
    }
    // Another migration has returned the hashes to this source.
    source.step(SourceInput::Forgotten(MigrationPhase::Ended), &mut out);
    assert!(source.is_over());
}

#[test]
fn a_source_that_is_gone_keeps_what_is_on_its_disk_and_leaves_what_was_in_memory() {
    for (is_durable, to) in [(true, MigrationPhase::Ended), (false, MigrationPhase::Finished)] {
        let (mut target, mut out) = (Target::new(MigrationMode::PreCopy, is_durable), Vec::new());
        let inputs = [
            TargetInput::Admitted,
            TargetInput::Message(Message::Prepared { objects: 1 }),
            TargetInput::End(TargetEnd::PartMade(vec![(0, u64::MAX)])),
            TargetInput::Phase(MigrationPhase::Moving),
            TargetInput::Message(Message::HandedOver { ceiling: 7 }),
        ];
        inputs.into_iter().for_each(|input| target.step(0, input, &mut out));
        out.clear();
        // Copies are still missing.
        target.step(1, TargetInput::SourceGone, &mut out);
        let from = MigrationPhase::Moving;
        let commit = TargetOutput::Do(TargetAction::Commit { from, to, is_peer_gone: true });
        assert!(out.contains(&commit), "durable {is_durable}: {out:?}");
        let serves = |output: &TargetOutput| matches!(output, TargetOutput::Do(TargetAction::Serve { .. }));
        assert!(!out.iter().any(serves), "durable {is_durable}: {out:?}");
    }
}

#[test]
fn a_death_that_was_recorded_too_late_for_one_standing_is_recorded_for_the_next() {
    let mut source = Source::default();
    let mut commits_after = |input| {
        let mut out = Vec::new();
        source.step(input, &mut out);
        let commits = |output: &SourceOutput| matches!(output, SourceOutput::Do(SourceAction::Commit { .. }));
        out.into_iter().filter(commits).collect::<Vec<_>>()
    };
    let commit = |from| {
        vec![SourceOutput::Do(SourceAction::Commit { from, to: MigrationPhase::Ended, is_peer_gone: true })]
    };
    assert_eq!(commits_after(SourceInput::TargetGone), commit(MigrationPhase::Preparing));
    // Owning the hashes was the target's last action.
    assert_eq!(commits_after(SourceInput::Phase(MigrationPhase::Moving)), []);
    let refused = SourceInput::End(SourceEnd::Committed(MigrationPhase::Moving));
    assert_eq!(commits_after(refused.clone()), commit(MigrationPhase::Moving));

    assert_eq!(commits_after(refused), [], "it was refused since the target is registered");
    assert_eq!(commits_after(SourceInput::TargetGone), commit(MigrationPhase::Moving));
}

fn messages() -> Vec<Message> {
    let place = PullCursor { hash: 3, second: u64::MAX };
    vec![
        Message::Prepare,
        Message::Prepared { objects: 7 },
        Message::HandOver,
        Message::HandedOver { ceiling: 9 },
        Message::Pull { partition: 7, number: 1, from: None },
        Message::Pull { partition: 0, number: u32::MAX, from: Some(place) },
        Message::Pulled { partition: 1, number: 2, next: Some(place), objects: vec![1, 2, 3] },
        Message::PriorityPull { number: 4, hashes: vec![1, u64::MAX] },
        Message::PriorityPulled { number: 4, count: 2, objects: Vec::new() },
        Message::Discard,
        Message::Discarded,
        Message::GiveBack {
            number: 1,
            is_last: true,
            ceiling: 5,
            objects: vec![8],
            removed: vec![place, place],
        },
        Message::TakenBack { number: 1 },
        Message::Copy,
        Message::Copied(Copied {
            number: 3,
            left: Left::Little,
            is_again: true,
            spans: vec![PullSpan { first: place, last: place }; 2],
            objects: vec![1, 2],
        }),
        Message::Stored { count: 8 },
        Message::Alive,
    ]
}

#[test]
fn a_message_is_read_as_it_was_written() {
    for message in messages() {
        assert_eq!(Message::decode(&message.encode()), Ok(message));
    }
}

#[test]
fn bytes_that_are_no_message_are_refused() {
    for message in messages() {
        let bytes = message.encode();
        for end in 0..bytes.len() {
            // A message that ends with objects may still be valid when cut; it is then a different message.
            let _ = Message::decode(&bytes[..end]);
        }
        assert_eq!(Message::decode(&[0]), Err(BadMessage));
    }
    let many = |count: u32| [&[7, 0, 0, 0, 0][..], &count.to_le_bytes(), &[0; 8 * 257]].concat();
    assert!(
        [0, 16, 256, 257, u32::MAX].into_iter().all(|count| Message::decode(&many(count)) == Err(BadMessage))
    );
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..20_000 {
        let mut bytes = random.choice(messages()).expect("there are some").encode();
        let at = random.usize(0..bytes.len());
        bytes[at] = random.u8(..);
        if let Ok(message) = Message::decode(&bytes) {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
        let length = random.usize(0..64);
        let noise: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
        let _ = Message::decode(&noise);
    }
}
