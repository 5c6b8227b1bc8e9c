//! What a function can do wrong: each misdeed by itself, thousands at once, and clients that go away.

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use client::{Function, Session, Status};
use tests::effort::{rng, rounds};

use super::latency::Latency;
use super::stage::{KEPT, MARK, Stage, answered, grew_old, in_time, refusal};

/// Misdeeds that end by themselves: function, how its caller is answered, and a part of the text.
pub const SHORT: [(&str, Status, &str); 19] = [
    ("recurse", Status::ExtensionStackOverflow, "stack_bytes = "),
    ("recurse_into_the_host", Status::ExtensionStackOverflow, "stack_bytes = "),
    ("huge_frame", Status::ExtensionStackOverflow, "stack_bytes = "),
    ("allocate_forever", Status::ExtensionOutOfMemory, "invocation_arena_bytes = "),
    ("grow_forever", Status::ExtensionOutOfMemory, "invocation_arena_bytes = "),
    ("allocate_at_once", Status::ExtensionOutOfMemory, "invocation_arena_bytes = "),
    ("panics", Status::ExtensionPanicked, "a key of 4 bytes"),
    ("panic_in_drop", Status::ExtensionPanicked, "from a destructor"),
    ("panic_while_it_says_why", Status::ExtensionPanicked, ""),
    ("looping_drop", Status::ExtensionPanicked, "nothing is unwound"),
    ("index_beyond", Status::ExtensionPanicked, "out of bounds"),
    ("divide_by_zero", Status::ExtensionPanicked, "divide by zero"),
    ("reply_flood", Status::ReplyTooLarge, "invocation_reply_bytes = "),
    ("write_flood", Status::LimitExceeded, ""),
    ("write_bulk", Status::LimitExceeded, ""),
    ("delete_flood", Status::LimitExceeded, ""),
    ("read_too_much", Status::LimitExceeded, ""),
    ("write_then_error", Status::ExtensionError, "42 as announced"),
    ("sneak", Status::ReadOnly, ""),
];

/// Misdeeds that do not end by themselves; the server ends them.
pub const ENDLESS: [&str; 6] =
    ["spin", "spin_yielding", "wait_for_nothing", "loop_in_drop_at_the_end", "log_flood", "look_for_tables"];

/// Bytes by which the server may grow under thousands of misdeeds: slots, stacks and logs that are kept.
const GROWTH_BYTES_MAX: u64 = 256 << 20;

#[test]
fn each_misdeed_gets_its_own_status_and_leaves_no_mark() {
    let mut stage = Stage::new();
    for (function, status, text) in SHORT {
        let mut latency = Latency::default();
        for round in 0..rounds(5, 75) {
            let answer = refusal(latency.of(|| stage.misdeed(function)));
            if !(answer.0 == Status::ExtensionKilled && grew_old(&answer.1)) {
                assert_eq!(answer.0, status, "{function} in round {round}: {}", answer.1);
                assert!(answer.1.contains(text), "{function}: {}", answer.1);
            }
            assert_eq!(stage.client.get(stage.table, MARK).unwrap(), None, "{function} left a mark");
        }
        latency.print(function);
        stage.neighbours.are_well();
    }
    assert_eq!(in_time(|| stage.misdeed("forget_future")).unwrap(), b"forgotten");
    stage.ends_unharmed();
}

#[test]
fn a_scan_that_never_ends_is_ended() {
    let mut stage = Stage::new();
    let mut latency = Latency::default();
    for _ in 0..rounds(3, 20) {
        let (status, text) = refusal(latency.of(|| stage.misdeed("read_forever")));
        assert!(matches!(status, Status::LimitExceeded | Status::ExtensionKilled), "{status:?} {text}");
    }
    latency.print("read_forever");
    stage.ends_unharmed();
}

#[test]
fn a_function_that_never_ends_is_ended_and_the_answer_names_the_limit() {
    let mut stage = Stage::new();
    for function in ENDLESS {
        let mut latency = Latency::default();
        for round in 0..rounds(2, 30) {
            let (status, text) = refusal(latency.of(|| stage.misdeed(function)));
            assert_eq!(status, Status::ExtensionKilled, "{function} in round {round}: {text}");
            assert!(text.contains(|digit: char| digit.is_ascii_digit()), "{function} has no limit: {text}");
            assert_eq!(stage.client.get(stage.table, MARK).unwrap(), None, "{function} left a mark");
        }
        latency.print(function);
        stage.neighbours.are_well();
    }
    stage.ends_unharmed();
}

/// Looks the functions up, so that they can be submitted.
fn functions<'n>(stage: &mut Stage, names: impl IntoIterator<Item = &'n str>) -> HashMap<&'n str, Function> {
    let resolve = |name| (name, stage.client.resolve(&format!("misbehave.{name}")).expect("it is installed"));
    names.into_iter().map(resolve).collect()
}

/// Submits `count` misdeeds, `depth` at a time, and checks how each is answered.
fn storm(
    session: &mut Session,
    table: u32,
    (count, depth): (usize, usize),
    mut next: impl FnMut() -> (Function, Status, &'static str),
) {
    let mut expected: Vec<(Status, &str)> = Vec::new();
    let mut done = 0;
    while done < count {
        while expected.len() < count && expected.len() - done < depth && session.can_submit() {
            let (function, status, name) = next();
            let request = function.request(table, MARK, b"left behind");
            session.submit(&request, expected.len() as u64).expect("there is room");
            expected.push((status, name));
        }
        let completed = session.poll_waiting(&mut |completion| {
            let (status, name) = expected[completion.tag as usize];
            let text = String::from_utf8_lossy(completion.body);
            let found = answered(&completion);
            if !(found == Status::ExtensionKilled && grew_old(&text)) {
                assert_eq!(found, status, "{name}, number {}: {text}", completion.tag);
            }
        });
        done += completed.expect("the session stands");
    }
}

#[test]
fn thousands_of_misdeeds_at_once_end_each_in_its_own_way_and_memory_stays_bounded() {
    let mut stage = Stage::new();
    let found = functions(&mut stage, SHORT.map(|case| case.0));
    let mut random = rng();
    let mut before = 0;
    for part in 0..2 {
        storm(stage.client.session(), stage.table, (rounds(3_000, 60_000), 64), || {
            let (name, status, _) = SHORT[random.usize(0..SHORT.len())];
            (found[name], status, name)
        });
        stage.neighbours.are_well();
        if part == 0 {
            before = stage.resident_bytes();
        }
    }
    let grown = stage.resident_bytes().saturating_sub(before);
    println!("the server has grown by {} KiB", grown >> 10);
    assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes more after the second half");
    stage.ends_unharmed();
}

#[test]
fn many_endless_functions_at_once_are_ended_while_neighbours_are_served() {
    let mut stage = Stage::new();
    let found = functions(&mut stage, ENDLESS);
    let mut random = rng();
    storm(stage.client.session(), stage.table, (rounds(96, 1_500), 48), || {
        let name = ENDLESS[random.usize(0..ENDLESS.len())];
        (found[name], Status::ExtensionKilled, name)
    });
    stage.ends_unharmed();
}

#[test]
fn clients_that_go_away_in_the_middle_leave_nothing_behind() {
    let mut stage = Stage::new();
    let names = ENDLESS.into_iter().chain(["write_flood", "write_then_error", "panics"]);
    let found: Vec<Function> = functions(&mut stage, names).into_values().collect();
    let mut random = rng();
    for _ in 0..rounds(20, 150) {
        let mut leaver = stage.server.client(&stage.mallory);
        let session = leaver.session();
        for tag in 0..12 {
            let function = found[random.usize(0..found.len())];
            session.submit(&function.request(stage.table, MARK, b"left behind"), tag).unwrap();
        }
        session.flush().unwrap();
        thread::sleep(Duration::from_millis(random.u64(0..20)));
        stage.neighbours.are_well();
    }
    stage.ends_unharmed();
}

#[test]
fn lent_records_do_not_change_while_they_are_overwritten() {
    // Little memory, so that what is overwritten would be used again soon.
    let mut stage = Stage::with_memory("32MiB", "1MiB");
    let hold = functions(&mut stage, ["hold"])["hold"];
    let mut writer = stage.server.client(&stage.mallory);
    let yields = 2_000_u32.to_le_bytes();
    let mut held = 0;
    for round in 0..rounds(25, 300) {
        let session = stage.client.session();
        for tag in 0..4 {
            session.submit(&hold.request(stage.table, KEPT, &yields), tag).unwrap();
        }
        session.flush().unwrap();
        for _ in 0..40 {
            writer.put(stage.table, KEPT, &vec![round as u8; 40_000]).expect("a put");
        }
        let mut done = 0;
        while done < 4 {
            let completed = session.poll_waiting(&mut |completion| {
                let text = String::from_utf8_lossy(&completion.body[..completion.body.len().min(99)]);
                let status = answered(&completion);
                if status == Status::ExtensionKilled && grew_old(&text) {
                    return;
                }
                assert_eq!(status, Status::Ok, "{text}");
                held += 1;
                let value = completion.body;
                assert!(value.iter().all(|byte| *byte == value[0]) || value == b"kept", "a torn record");
            });
            done += completed.unwrap();
        }
    }
    assert!(held > 0, "no record was held to the end");
    stage.client.put(stage.table, KEPT, b"kept").unwrap();
    stage.ends_unharmed();
}
