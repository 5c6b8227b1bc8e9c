//! The checker of histories itself: held against one that tries everything, and against porcupine.
//!
//! Random histories are made by letting clients use a store that is correct; some answers are then lost, and some are
//! falsified. `SPLINTER_SEED` repeats a run, `SPLINTER_FULL=1` makes it long.

mod exhaustive;
mod making;

use making::{falsify, make, make_with};
use tests::effort::{rng, rounds};
use tests::history::{Action, Condition, Operation, Outcome, Verdict, check, porcupine, to_text};

fn is_fine(history: &[Operation]) -> bool {
    match check(history) {
        Verdict::Linearizable => true,
        Verdict::Violated(..) => false,
        Verdict::Undecided(key, operations) => panic!("no verdict on key {key}\n{}", to_text(&operations)),
    }
}

fn operation((call, end): (u64, u64), action: Action, outcome: Outcome) -> Operation {
    Operation { client: 0, key: 0, call, end: (end > 0).then_some(end), action, outcome }
}

#[test]
fn it_agrees_with_trying_everything_on_small_histories() {
    let mut random = rng();
    let (mut fine, rounds) = (0, rounds(4_000, 60_000));
    for _ in 0..rounds {
        let operations = random.usize(1..7);
        let mut history = make(&mut random, operations, 1);
        if random.bool() {
            falsify(&mut random, &mut history);
        }
        let is_fine = is_fine(&history);
        assert_eq!(is_fine, exhaustive::check(&history), "\n{}", to_text(&history));
        fine += usize::from(is_fine);
    }
    println!("{rounds} histories, {fine} of them linearizable");
    assert!(fine > rounds / 4 && fine < rounds * 9 / 10, "both kinds were among them");
}

#[test]
fn it_agrees_with_porcupine() {
    let mut random = rng();
    let mut histories = Vec::new();
    for _ in 0..rounds(1_000, 10_000) {
        let operations = *random.choice(&[6, 40, 200]).expect("there are some");
        let mut history = make(&mut random, operations, 4);
        if random.bool() {
            falsify(&mut random, &mut history);
        }
        histories.push(history);
    }
    let all: Vec<&[Operation]> = histories.iter().map(Vec::as_slice).collect();
    let verdicts = porcupine::judge(&all);
    let fine = verdicts.iter().filter(|&&fine| fine).count();
    println!("{} histories, {fine} of them linearizable", histories.len());
    for (history, verdict) in histories.iter().zip(verdicts) {
        assert_eq!(is_fine(history), verdict, "\n{}", to_text(history));
    }
    assert!(fine > 0 && fine < histories.len(), "both kinds were among them");
}

#[test]
fn histories_of_a_correct_store_are_linearizable() {
    let mut random = rng();
    for _ in 0..rounds(100, 5_000) {
        let history = make(&mut random, 500, 8);
        assert!(is_fine(&history), "\n{}", to_text(&history));
    }
}

/// Of what clients saw of one key while servers were away.
#[test]
fn a_key_with_many_lost_answers_is_judged() {
    let mut random = rng();
    let mut fine = 0;
    let rounds = rounds(12, 1_000);
    for round in 0..rounds {
        let mut newest = 0;
        let distinct = |_: &mut _| {
            newest += 1 << 16;
            newest
        };
        let mut history = make_with(&mut random, 600, 1, 40, distinct);
        let lost = history.iter().filter(|operation| operation.end.is_none()).count();
        assert!(lost > 30, "{lost} are lost");
        if round % 2 == 1 {
            falsify(&mut random, &mut history);
        }
        // Of a wrong one there may be too much to try.
        let is_fine = check(&history) == Verdict::Linearizable;
        assert!(is_fine || round % 2 == 1, "\n{}", to_text(&history));
        fine += usize::from(is_fine);
    }
    println!("{rounds} histories, {fine} of them linearizable");
    assert!(fine < rounds, "both kinds were among them");
}

#[test]
fn a_read_of_what_was_overwritten_before_it_began_is_a_violation() {
    let put = |moments, value, version| {
        operation(moments, Action::Put(value, Condition::Always), Outcome::Done(version))
    };
    let get = |moments, value, version| operation(moments, Action::Get, Outcome::Found(version, value));
    let writes = [put((1, 2), 10, 1), put((3, 6), 20, 2)];
    assert!(is_fine(&[&writes[..], &[get((4, 5), 10, 1), get((7, 8), 20, 2)]].concat()));
    assert!(!is_fine(&[&writes[..], &[get((7, 8), 10, 1)]].concat()));
    // Nobody sees it go back.
    assert!(!is_fine(&[&writes[..], &[get((3, 4), 20, 2), get((5, 6), 10, 1)]].concat()));
}

#[test]
fn a_write_without_an_answer_may_happen_late_or_never_but_once() {
    let add = operation((1, 0), Action::Add(5), Outcome::Unknown);
    let get = |moments, version, value| operation(moments, Action::Get, Outcome::Found(version, value));
    let nothing = |moments| operation(moments, Action::Get, Outcome::Nothing);
    assert!(is_fine(&[add, nothing((2, 3)), nothing((4, 5))]));
    assert!(is_fine(&[add, nothing((2, 3)), get((4, 5), 1, 5), get((6, 7), 1, 5)]));
    assert!(!is_fine(&[add, get((2, 3), 1, 5), nothing((4, 5))]));
    assert!(!is_fine(&[add, get((2, 3), 1, 5), get((4, 5), 2, 10)]));
}

#[test]
fn what_was_put_for_a_while_ends_behind_the_put_that_it_overlaps() {
    let put = operation((1, 4), Action::Put(10, Condition::Always), Outcome::Done(4));
    let expire = operation((3, 6), Action::Expire(10), Outcome::Unknown);
    let nothing = operation((7, 8), Action::Get, Outcome::Nothing);
    assert!(is_fine(&[put, expire, nothing]));
    assert!(!is_fine(&[put, nothing]));
}

#[test]
fn a_version_that_is_given_twice_is_a_violation() {
    let put = |moments, value, version| {
        operation(moments, Action::Put(value, Condition::Always), Outcome::Done(version))
    };
    assert!(is_fine(&[put((1, 2), 10, 4), put((3, 4), 20, 9)]));
    assert!(!is_fine(&[put((1, 2), 10, 4), put((3, 4), 20, 4)]));
    assert!(!is_fine(&[put((1, 2), 10, 4), put((3, 4), 20, 3)]));
}

#[test]
fn after_a_loss_a_key_is_as_it_is_found_and_goes_on_from_there() {
    let put = operation((1, 2), Action::Put(10, Condition::Always), Outcome::Done(4));
    let lose = operation((3, 0), Action::Lose, Outcome::Unknown);
    let nothing = |moments| operation(moments, Action::Get, Outcome::Nothing);
    let get = |moments| operation(moments, Action::Get, Outcome::Found(4, 10));
    assert!(!is_fine(&[put, nothing((4, 5))]));
    assert!(is_fine(&[put, lose, get((4, 5)), nothing((6, 7))]));
    assert!(!is_fine(&[put, lose, nothing((4, 5)), get((6, 7))]));
}
