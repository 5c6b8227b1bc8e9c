//! How long a victim waits beside loops and storms of short functions, natively and in modules: printed, not judged.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use client::{Client, Function};
use tests::effort::rounds;

use super::modules::{ENDS, TOOLS, install, limit};
use super::stage::{Stage, answered, install_folder};
use super::victim::Victim;

/// Invocations that the attacker has under way: of loops, a few are a full core; of short functions, all that fit a frame.
const LOOPS: usize = 8;
const SHORT: usize = 64;

/// Calls a function again and again until it is told to stop; gives how often.
fn keep_calling(
    client: &mut Client,
    function: Function,
    table: u32,
    depth: usize,
    stop: &AtomicBool,
) -> usize {
    let session = client.session();
    let (mut submitted, mut done) = (0, 0);
    while !stop.load(Ordering::Relaxed) || done < submitted {
        while !stop.load(Ordering::Relaxed) && submitted - done < depth && session.can_submit() {
            session.submit(&function.request(table, b"key", &[0; 8]), 0).expect("there is room");
            submitted += 1;
        }
        let completed = session.poll_waiting(&mut |completion| {
            answered(&completion);
        });
        done += completed.expect("the session stands");
    }
    done
}

#[test]
fn a_victim_is_served_beside_loops_and_storms_in_either_form() {
    let mut stage = Stage::new();
    install(&mut stage.client, "tools", TOOLS);
    install(&mut stage.client, "ends", ENDS);
    install_folder(&mut stage.client, "noop");
    let mut victim = Victim::begin(&stage.server);
    let asked = rounds(100, 2_000);
    for (name, function, depth, sandbox) in [
        ("nothing", "noop.noop", 0, 0),
        ("loops, native", "misbehave.spin", LOOPS, 0),
        ("loops, sandbox=wasm", "misbehave.spin", LOOPS, 1),
        ("loops, finished module", "ends.spin", LOOPS, 0),
        ("short functions, native", "noop.noop", SHORT, 0),
        ("short functions, sandbox=wasm", "noop.noop", SHORT, 1),
        ("short functions, finished module", "tools.peek", SHORT, 0),
        ("traps, finished module", "ends.trap_later", SHORT, 0),
    ] {
        limit(&stage.server, "mallory", &[("sandbox", sandbox)]);
        let mut attacker = stage.server.client(&stage.mallory);
        let function = attacker.resolve(function).expect("it is installed");
        let (stop, table) = (AtomicBool::new(false), stage.table);
        victim.forget_latencies();
        let calls = thread::scope(|scope| {
            let calls = scope.spawn(|| keep_calling(&mut attacker, function, table, depth, &stop));
            for _ in 0..asked {
                victim.is_well();
            }
            stop.store(true, Ordering::Relaxed);
            calls.join().expect("the attacker is answered")
        });
        println!("beside {name}, {calls} calls:");
        victim.print_latencies();
        assert_eq!(calls > 0, depth > 0);
        stage.neighbours.are_well();
    }
    victim.ends_well();
    stage.ends_unharmed();
}
