//! Attacks on the second wall through a real server: modules that no check of sources has seen, installed and called over
//! the network, beside tenants on the same core.
//!
//! Each attack ends in a typed status of the attacker's, or does something to its own memory that nobody else sees; it
//! writes nothing. After each, a victim's records and functions are looked at, while three neighbours go on. The same
//! modules attack in `db/tests/second_wall`, in the process of the test, more often and with more of their arguments.

use client::{Client, Error, Right, Status};
use tests::effort::{rng, rounds};

use super::attacks::{ATTACKS, Attack, BLOCK, KILLED, LOOPS, MARK, PANICKED, WORD};
use super::latency::Latency;
use super::misdeeds::{ENDLESS, SHORT};
use super::modules::forged_calls::{Call, END, VALUES, calls, text};
use super::modules::{TOOLS, ends, install, limit, words};
use super::stage::{Stage, answered, grew_old, refusal};
use super::victim::Victim;

/// The key under which the attacker has a large object, as the modules know it.
const KEY: &[u8] = b"key";
/// How tenants are answered that do nothing wrong; where others have the processors, an invocation may grow old, and a
/// copy of a request may come when the request was answered long ago.
const FOR_THE_HONEST: [&str; 7] =
    ["ok", "not_found", "retry", "use_stream", "throttled", "expired", "extension_killed"];

/// Mallory with its modules, tables and objects, and the victim.
struct Attacked {
    stage: Stage,
    victim: Victim,
    /// Of Mallory's: what its modules are called with, and one that keeps its keys in order.
    table: u32,
    ordered: u32,
}

impl Attacked {
    fn new() -> Self {
        let mut stage = Stage::new();
        let table = stage.client.table_create("attacks").expect("a table");
        let ordered = stage.client.table_create_ordered("ordered").expect("a table");
        stage.client.put(table, KEY, &vec![7; 1 << 20]).expect("a put");
        for key in 0..8u8 {
            stage.client.put(ordered, &[key], &[key; 20_000]).expect("a put");
        }
        limit(&stage.server, "mallory", &[("invocation_yields", 1_000)]);
        let calls = calls(table.into(), ordered.into());
        for (name, text) in [("tools", TOOLS), ("ends", &ends(ordered)), ("calls", &text(&calls))] {
            install(&mut stage.client, name, text);
        }
        let victim = Victim::begin(&stage.server);
        Self { stage, victim, table, ordered }
    }

    fn call(&mut self, function: &str, arguments: &[u8]) -> Result<Vec<u8>, Error> {
        self.stage.client.invoke(function, self.table, KEY, arguments)
    }

    /// The numbers of Mallory's tables.
    fn own_tables(&mut self) -> Vec<u64> {
        let tables = self.stage.client.table_list().expect("an answer");
        tables.iter().map(|entry| entry.id.into()).collect()
    }

    /// Runs an attack once, and the victim's questions after it.
    fn attack(&mut self, attack: &Attack, latency: &mut Latency) {
        let (function, arguments, status, text) = *attack;
        let answer = latency.of(|| self.call(function, &words(arguments)));
        check(attack, &outcome(answer));
        self.victim.is_well();
        self.nothing_was_written(|| format!("{function} {arguments:x?}, {status:?} {text}"));
    }

    fn nothing_was_written(&mut self, attack: impl Fn() -> String) {
        for (table, expected) in [("attacks", 1), ("ordered", 8)] {
            let objects = self.stage.client.table_stat(table).expect("an answer").objects;
            assert_eq!(objects, expected, "{table} after {}", attack());
        }
    }

    /// Nobody was harmed, and the server knows of nothing that it did wrong itself.
    fn ends_unharmed(mut self) {
        let found = self.stage.client.get(self.table, KEY).expect("an answer").expect("it stands");
        assert!(found.value == vec![7; 1 << 20], "the attacker's own object");
        self.victim.ends_well();
        self.stage.neighbours.are_well();
        let statistics = self.stage.server.admin().statistics().expect("the operator may");
        let of = |name: &str| {
            let found = statistics.iter().find(|statistic| statistic.name == name);
            found.unwrap_or_else(|| panic!("no counter {name}")).value
        };
        for name in ["objects_corrupted", "frames_malformed", "groups_unauthenticated"] {
            assert_eq!(of(name), 0, "{name}");
        }
        for tenant in ["victim", "keeper", "counter", "bank"] {
            let statistics = self.stage.server.admin().tenant_statistics(tenant).expect("the operator may");
            let answers = statistics.iter().filter_map(|statistic| statistic.name.strip_prefix("answers_"));
            let others: Vec<_> = answers.filter(|status| !FOR_THE_HONEST.contains(status)).collect();
            assert!(others.is_empty(), "{tenant} was answered {others:?}");
        }
        let [ran, made, stalls] = ["invocations_wasm", "instances_made", "watchdog_stalls"].map(of);
        println!("{ran} invocations in modules, {made} instances made, {stalls} stalls");
        self.stage.ends_unharmed();
    }
}

/// Status and text of an answer; of a good one, no text.
fn outcome(answer: Result<Vec<u8>, Error>) -> (Status, String) {
    answer.map_or_else(|error| refusal::<()>(Err(error)), |_| (Status::Ok, String::new()))
}

fn check(attack: &Attack, answer: &(Status, String)) {
    let (function, arguments, status, text) = attack;
    if answer.0 == KILLED && grew_old(&answer.1) {
        return;
    }
    assert_eq!(answer.0, *status, "{function} {arguments:x?}: {}", answer.1);
    assert!(answer.1.contains(text), "{function} {arguments:x?}: {}", answer.1);
}

#[test]
fn each_attack_ends_in_its_status_and_harms_nobody() {
    let mut attacked = Attacked::new();
    for attack in &ATTACKS {
        let mut latency = Latency::default();
        for _ in 0..rounds(5, 100) {
            attacked.attack(attack, &mut latency);
        }
        latency.print(&format!("{} {:x?}", attack.0, attack.1));
        attacked.stage.neighbours.are_well();
    }
    attacked.ends_unharmed();
}

#[test]
fn each_loop_of_a_module_is_ended_by_its_limit_and_harms_nobody() {
    let mut attacked = Attacked::new();
    limit(&attacked.stage.server, "mallory", &[("invocation_cpu_us", 20_000)]);
    for attack in &LOOPS {
        let mut latency = Latency::default();
        for _ in 0..rounds(5, 100) {
            attacked.attack(attack, &mut latency);
        }
        latency.print(attack.0);
        attacked.stage.neighbours.are_well();
    }
    attacked.ends_unharmed();
}

#[test]
fn a_storm_of_attacks_in_any_order_ends_each_in_its_own_way() {
    let mut attacked = Attacked::new();
    limit(&attacked.stage.server, "mallory", &[("invocation_cpu_us", 50_000)]);
    let mut random = rng();
    let attacks: Vec<&Attack> = ATTACKS.iter().chain(&LOOPS).collect();
    let functions: Vec<_> = attacks
        .iter()
        .map(|attack| attacked.stage.client.resolve(attack.0).expect("it is installed"))
        .collect();
    for _ in 0..rounds(10, 100) {
        let chosen: Vec<usize> = (0..200).map(|_| random.usize(..attacks.len())).collect();
        let table = attacked.table;
        let session = attacked.stage.client.session();
        let (mut submitted, mut done) = (0, 0);
        while done < chosen.len() {
            while submitted < chosen.len() && submitted - done < 48 && session.can_submit() {
                let arguments = words(attacks[chosen[submitted]].1);
                let request = functions[chosen[submitted]].request(table, KEY, &arguments);
                session.submit(&request, submitted as u64).expect("there is room");
                submitted += 1;
            }
            let completed = session.poll_waiting(&mut |completion| {
                let (function, arguments, status, text) = *attacks[chosen[completion.tag as usize]];
                let found = answered(&completion);
                // The reply of a function that succeeded or failed by itself is no text.
                let has_text = !matches!(found, Status::Ok | Status::ExtensionError);
                let said = if has_text { completion.body } else { b"" };
                let said = String::from_utf8_lossy(said).into_owned();
                let text = if has_text { text } else { "" };
                // Of so many large replies at a time not all are kept for a copy of their request.
                if found == Status::ReplyForgotten && status == Status::Ok {
                    return;
                }
                check(&(function, arguments, status, text), &(found, said));
            });
            done += completed.expect("the session stands");
        }
        attacked.victim.is_well();
        attacked.stage.neighbours.are_well();
        attacked.nothing_was_written(|| "a storm".into());
    }
    attacked.ends_unharmed();
}

#[test]
fn misdeeds_in_safe_rust_end_as_well_where_the_operator_wants_modules() {
    let mut stage = Stage::new();
    let mut victim = Victim::begin(&stage.server);
    limit(&stage.server, "mallory", &[("sandbox", 1)]);
    let endless = ENDLESS.map(|function| (function, KILLED, "="));
    let mut count = 0;
    for (function, status, text) in SHORT.into_iter().chain(endless) {
        let mut latency = Latency::default();
        for round in 0..if status == KILLED { rounds(2, 30) } else { rounds(5, 100) } {
            let answer = refusal(latency.of(|| stage.misdeed(function)));
            count += 1;
            if !(answer.0 == KILLED && grew_old(&answer.1)) {
                assert_eq!(answer.0, status, "{function} in round {round}: {}", answer.1);
                assert!(answer.1.contains(text), "{function}: {}", answer.1);
            }
            victim.is_well();
        }
        latency.print(function);
        stage.neighbours.are_well();
    }
    let statistics = stage.server.admin().tenant_statistics("mallory").expect("the operator may");
    println!("{count} misdeeds: {statistics:?}");
    victim.ends_well();
    stage.ends_unharmed();
}

/// How a forged call may be answered: see `db/tests/second_wall/host_calls.rs`.
fn check_call(call: &Call, arguments: &[u64], status: Status, body: &[u8]) {
    let code = (status == Status::Ok).then(|| u64::from_le_bytes(body.try_into().expect("a code")));
    let said = || format!("{} {arguments:x?}: {status:?} {code:x?}", call.name);
    match status {
        Status::Ok if call.leaves(arguments) => {
            assert!(call.has_result() && code != Some(0), "a range outside succeeds: {}", said());
        }
        Status::Ok => assert_ne!(call.import(), "abandon", "it never returns"),
        Status::ExtensionOutOfMemory => assert_eq!(call.import(), "abandon", "{}", said()),
        PANICKED | Status::Conflict | Status::ConditionFailed | Status::NotANumber => {}
        KILLED => assert!(grew_old(&String::from_utf8_lossy(body)), "{}", said()),
        _ => panic!("{}", said()),
    }
}

/// The arguments of all forged calls: each value in each argument, and pairs of them where time does not matter.
fn forged(call: &Call) -> Vec<Vec<u64>> {
    let mut all = vec![call.good.clone()];
    let addresses: Vec<usize> = call.types.match_indices('i').map(|found| found.0).collect();
    for (place, &first) in addresses.iter().enumerate() {
        for &other in &addresses[place..] {
            let others = if first == other { &VALUES[..1] } else { &VALUES[..rounds(0, VALUES.len())] };
            for with in others {
                all.extend(VALUES.map(|value| {
                    let mut arguments = call.good.clone();
                    (arguments[other], arguments[first]) = (*with, value);
                    arguments
                }));
            }
        }
    }
    all
}

#[test]
fn forged_addresses_and_lengths_in_host_calls_harm_nobody() {
    let mut attacked = Attacked::new();
    // What is written here by calls that are right is written elsewhere.
    let table = attacked.stage.client.table_create("forged").expect("a table");
    let own = attacked.own_tables();
    for call in &calls(table.into(), attacked.ordered.into()) {
        let function =
            attacked.stage.client.resolve(&format!("calls.{}", call.name)).expect("it is installed");
        let mut forged = forged(call);
        // A number that happens to be another table of its own is none of the forged ones.
        forged.retain(|arguments| arguments.get(1) == call.good.get(1) || !own.contains(&arguments[1]));
        let (mut submitted, mut done) = (0, 0);
        while done < forged.len() {
            let session = attacked.stage.client.session();
            while submitted < forged.len() && submitted - done < 48 && session.can_submit() {
                let arguments = words(&forged[submitted]);
                let request = function.request(table, KEY, &arguments);
                session.submit(&request, submitted as u64).expect("there is room");
                submitted += 1;
            }
            let completed = session.poll_waiting(&mut |completion| {
                let arguments = &forged[completion.tag as usize];
                check_call(call, arguments, answered(&completion), completion.body);
            });
            done += completed.expect("the session stands");
            attacked.victim.is_well();
        }
        println!("{}: {done} calls", call.name);
        attacked.stage.neighbours.are_well();
    }
    attacked.ends_unharmed();
}

#[test]
fn tables_of_others_are_answered_like_tables_that_do_not_exist() {
    const NOWHERE: u64 = 1_000_000;
    let mut attacked = Attacked::new();
    let own = attacked.own_tables();
    let calls = calls(NOWHERE, NOWHERE);
    for call in calls.iter().filter(|call| call.good.get(1) == Some(&NOWHERE)) {
        let ask = |attacked: &mut Attacked, table: u64| {
            let mut arguments = call.good.clone();
            arguments[1] = table;
            attacked.call(&format!("calls.{}", call.name), &words(&arguments))
        };
        let unknown = outcome_and_body(ask(&mut attacked, NOWHERE));
        assert_ne!(unknown, (Status::Ok, String::new(), words(&[0])), "{}", call.name);
        for table in (0..40).chain([WORD - 1]).filter(|table| !own.contains(table)) {
            let found = outcome_and_body(ask(&mut attacked, table));
            assert_eq!(found, unknown, "{} of table {table}", call.name);
        }
        attacked.victim.is_well();
    }
    names_of_others_are_unknown(&mut attacked);
    attacked.ends_unharmed();
}

/// Asks for tables by name: the name follows the words of the arguments, whose address a module can read.
fn names_of_others_are_unknown(attacked: &mut Attacked) {
    // The address of the arguments in the call block; the key is the same in both calls.
    let peeked = attacked.call("tools.peek", &words(&[BLOCK + 16 + 16])).expect("its own memory");
    let address = u32::from_le_bytes(peeked[..4].try_into().expect("a word"));
    let mut ask = |name: &str| {
        let arguments = [0, u64::from(address) + 32, name.len() as u64, 70_000];
        let answer = attacked.call("calls.table", &[words(&arguments), name.into()].concat());
        u64::from_le_bytes(answer.expect("a code")[..].try_into().expect("a code"))
    };
    assert_eq!(ask("attacks"), 0, "its own table is found");
    let unknown = ask("nowhere");
    assert_ne!(unknown, 0);
    for name in ["canaries", "victim/canaries", "objects", "keeper/objects", "bank/accounts", "../victim"] {
        assert_eq!(ask(name), unknown, "{name}");
    }
}

fn outcome_and_body(answer: Result<Vec<u8>, Error>) -> (Status, String, Vec<u8>) {
    match answer {
        Ok(body) => (Status::Ok, String::new(), body),
        error => {
            let (status, text) = outcome(error);
            (status, text, Vec::new())
        }
    }
}

/// Counts the marks that a tenant finds in memory and globals.
fn seek(client: &mut Client, extension: &str, table: u32) -> u64 {
    let mut ask = |function: &str, arguments: &[u64]| {
        let name = format!("{extension}.{function}");
        let body = client.invoke(&name, table, KEY, &words(arguments)).expect("its own memory");
        u64::from_le_bytes(body[..].try_into().expect("a number"))
    };
    let places =
        [(0, BLOCK, 8), (65_544, 1 << 20, 8), (1 << 20, END - (1 << 20), 1_024), (END - (1 << 20), END, 8)];
    let found = places.map(|(from, to, step)| ask("seek_read", &[from, to, step, !MARK]));
    found.iter().sum::<u64>() + u64::from(ask("globals_read", &[]) != 0)
}

#[test]
fn a_module_that_was_granted_carries_nothing_from_one_tenant_to_another() {
    let mut attacked = Attacked::new();
    let bob = attacked.stage.server.tenant("bob");
    let mut bob = attacked.stage.server.client(&bob);
    let bobs = bob.table_create("data").expect("a table");
    bob.put(bobs, KEY, &MARK.to_le_bytes().repeat(512)).expect("a put");
    attacked.stage.client.grant("tools", "bob", Right::Invoke).expect("its own extension");
    for round in 0..rounds(5, 100) as u64 {
        let marks = words(&[0, BLOCK, 8, MARK, [0, 77 << 8 | 1][round as usize % 2]]);
        let all = words(&[65_544, END, 8, MARK, 0]);
        for from_bob in [false, true] {
            for (function, arguments) in [("fill", &marks), ("fill", &all), ("claim", &words(&[MARK]))] {
                // Some end well, some in an error; what counts is what is left.
                let (client, owner, table) = match from_bob {
                    true => (&mut bob, "mallory/", bobs),
                    false => (&mut attacked.stage.client, "", attacked.table),
                };
                outcome(client.invoke(&format!("{owner}tools.{function}"), table, KEY, arguments));
                assert_eq!(seek(&mut bob, "mallory/tools", bobs), 0, "bob after {function}");
                let found = seek(&mut attacked.stage.client, "tools", attacked.table);
                assert_eq!(found, 0, "mallory after {function} of bob: {from_bob}");
            }
        }
        attacked.victim.is_well();
    }
    attacked.ends_unharmed();
}

#[test]
fn after_a_restart_the_modules_attack_again_and_harm_nobody() {
    let mut attacked = Attacked::new();
    let functions = [ATTACKS[7], ATTACKS[10], ATTACKS[25], ATTACKS[30], ATTACKS[38], LOOPS[0], LOOPS[10]];
    for attack in &functions {
        attacked.attack(attack, &mut Latency::default());
    }
    let Attacked { mut stage, victim, .. } = attacked;
    stage.neighbours.end();
    let objects = stage.client.table_stat("attacks").expect("an answer").objects;
    let tenant = victim.tenant.clone();
    victim.ends_well();
    assert!(stage.server.stop().success(), "{}", stage.server.log());
    stage.server.restart();
    let mut client = stage.server.client(&stage.mallory);
    let mut other = stage.server.client(&tenant);
    let table = client.table_open("attacks").expect("tables are kept");
    let canaries = other.table_open("canaries").expect("tables are kept");
    assert_eq!(client.extension_list().expect("an answer").len(), 4, "misbehave and three modules");
    other.put(canaries, KEY, b"canary").expect("a put");
    for attack in functions.iter().cycle().take(7 * rounds(2, 25)) {
        let answer = client.invoke(attack.0, table, KEY, &words(attack.1));
        check(attack, &outcome(answer));
        let list = [&[3, 0], KEY].concat();
        let sum = other.invoke("checksum.checksum", canaries, b"", &list).expect("the victim is served");
        assert_eq!(sum[4..8], [1, 0, 0, 0], "it is found");
        assert_eq!(client.table_stat("attacks").expect("an answer").objects, objects, "nothing was written");
    }
    assert!(stage.server.is_running());
    let log = stage.server.log();
    assert!(!log.contains("ERROR") && !log.contains("panicked"), "{log}");
}
