//! Thousands of invocations that fill their memory and wait: what they hold is bounded, and given back.

use client::{Client, ClientConfig, Status};
use db::limits::{INVOCATION_BYTES_PER_WORKER, WARM_BYTES_PER_WORKER};
use tests::effort::rounds;
use tests::raw::PATIENCE;
use tests::server::patient;

use super::stage::{MARK, Stage, answered};

/// Sessions of the attacker, and how many invocations each has under way: all fill some 900 KiB.
const SESSIONS: usize = 10;
const DEPTH: usize = 200;

/// How an invocation may be answered that would never end: the bound, or a limit that it met before.
const LIMITS: [&str; 5] = [
    "held_bytes_of_a_core",
    "preempted_invocations_of_a_core",
    "invocation_wall_us",
    "invocation_cpu_us",
    "invocation_yields",
];

#[test]
fn what_a_hoarder_holds_is_bounded_while_neighbours_are_served_and_is_given_back() {
    let mut stage = Stage::with_memory("64MiB", "4MiB");
    let hoard = stage.client.resolve("misbehave.hoard").expect("it is installed");
    let (address, mallory) = (stage.server.address().to_string(), stage.mallory.clone());
    let config = ClientConfig { call_timeout: 10 * PATIENCE, ..patient() };
    let connect = || Client::connect_with(&address, &mallory.name, &mallory.secret, config.clone());
    let mut clients: Vec<Client> = (0..SESSIONS).map(|_| connect().expect("mallory is let in")).collect();
    let (before, count) = (stage.resident_bytes(), rounds(6_000, 40_000));
    let (mut submitted, mut done, mut most, mut ended) = (0, 0, before, [0; LIMITS.len()]);
    while done < count {
        for client in &mut clients {
            let session = client.session();
            while submitted < count && session.outstanding() < DEPTH && session.can_submit() {
                session.submit(&hoard.request(stage.table, MARK, b"left behind"), 0).expect("there is room");
                submitted += 1;
            }
            let completed = session.poll(&mut |completion| {
                let text = String::from_utf8_lossy(completion.body);
                assert_eq!(answered(&completion), Status::ExtensionKilled, "{text}");
                let limit = LIMITS.iter().position(|limit| text.contains(limit));
                ended[limit.unwrap_or_else(|| panic!("no limit is named: {text}"))] += 1;
            });
            done += completed.expect("the session stands");
        }
        most = most.max(stage.resident_bytes());
        stage.neighbours.are_well();
    }
    let (grown, kept) = (most - before, stage.resident_bytes().saturating_sub(before));
    println!("{ended:?} by limit, {} MiB more at the most, {} MiB afterwards", grown >> 20, kept >> 20);
    assert!(ended[0] > 0, "nobody met the bound: {ended:?}");
    assert!(grown < INVOCATION_BYTES_PER_WORKER as u64, "{grown} bytes more");
    assert!(kept < WARM_BYTES_PER_WORKER as u64 + (64 << 20), "{kept} bytes are not given back");
    stage.ends_unharmed();
}
