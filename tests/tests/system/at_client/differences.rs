//! Each function of `ext/` at the server, at the client, and pushed back after each number of host calls: equal replies, equal ends,
//! equal tables.
//!
//! Two tenants have the same tables and get the same calls, one invokes them and the other runs them, or begins at the server, which
//! pushes them back. Arguments are partly what the functions want and partly noise.

use std::collections::HashMap;

use client::{Client, Error, Function, Local, Module, ModuleRuntime, PlacedFunction, RunAt, Status};
use fastrand::Rng;
use tests::effort::{rng, rounds};
use tests::server::{Server, Settings};

use super::{end_with, error_of, install, load, runtime};

/// Host calls after which a server pushes back at most.
const CALLS_MAX: u32 = 12;

/// Where the second tenant's functions run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Here,
    PushedBack,
}

/// Runs a test with functions that run at the client, and with some that are pushed back after a number of host calls.
fn each_way(test: impl Fn(&Server, &ModuleRuntime, Way, &mut Rng)) {
    let (runtime, mut random) = (runtime(), rng());
    test(&Server::start(), &runtime, Way::Here, &mut random);
    let numbers = match rounds(1, CALLS_MAX as usize) as u32 {
        1 => vec![random.u32(0..CALLS_MAX)],
        all => (0..all).collect(),
    };
    for after in numbers {
        println!("pushed back after {after} host calls");
        let arguments = vec!["--push-back-after".to_owned(), after.to_string()];
        let server = Server::start_with(Settings { arguments, ..Settings::default() });
        test(&server, &runtime, Way::PushedBack, &mut random);
    }
}

/// The two sides of a comparison.
struct Sides {
    /// Invokes.
    server: Client,
    /// Runs.
    local: Option<Local>,
    module: Module,
    functions: HashMap<String, Function>,
    way: Way,
    name: String,
    /// The plain and the ordered table, of the one that invokes and of the one that runs.
    tables: [[u32; 2]; 2],
}

/// Plain, ordered, and none.
const TABLE: usize = 0;
const ORDERED: usize = 1;
const NO_TABLE: u32 = 77;

/// What a call ends with.
#[derive(Debug, PartialEq)]
enum End {
    Reply(Vec<u8>),
    Failed(Option<Status>, Option<(u32, Vec<u8>)>),
}

impl End {
    fn of(result: Result<Vec<u8>, Error>) -> End {
        match result {
            Ok(reply) => End::Reply(reply),
            Err(Error::ExtensionFailed { code, message }) => End::Failed(None, Some((code, message))),
            Err(error) => End::Failed(error.status(), None),
        }
    }
}

impl Sides {
    fn new(server: &Server, runtime: &ModuleRuntime, way: Way, name: &str) -> Sides {
        let sides = ["invokes", "runs"].map(|role| {
            let mut client = server.client(&server.tenant(&format!("{name}-{role}")));
            install(&mut client, name);
            let tables = [client.table_create("plain"), client.table_create_ordered("ordered")];
            (client, tables.map(|table| table.expect("a fresh name")))
        });
        let [(server, invoked), (mut client, ran)] = sides;
        let (module, tables) = (load(runtime, &mut client, name), [invoked, ran]);
        let resolve = |function: &str| {
            let found = client.resolve(&format!("{name}.{function}")).expect("the module has it");
            (function.to_owned(), found)
        };
        let functions = module.functions().map(resolve).collect();
        Sides {
            server,
            local: Some(Local::new(client.into_session())),
            module,
            functions,
            way,
            name: name.to_owned(),
            tables,
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        let [invoked, ran] = self.tables.map(|tables| tables[TABLE]);
        self.server.put(invoked, key, value).expect("there is room");
        self.with_client(|client| client.put(ran, key, value).map(|_| ()).expect("there is room"));
    }

    fn with_client<T>(&mut self, work: impl FnOnce(&mut Client) -> T) -> T {
        let mut client = Client::over(self.local.take().expect("an executor").into_session());
        let done = work(&mut client);
        self.local = Some(Local::new(client.into_session()));
        done
    }

    fn call(&mut self, function: &str, table: usize, key: &[u8], arguments: &[u8]) -> bool {
        let [at_server, here] = self.tables.map(|tables| tables.get(table).copied().unwrap_or(NO_TABLE));
        let name = format!("{}.{function}", self.name);
        let invoked = End::of(self.server.invoke(&name, at_server, key, arguments));
        let local = self.local.as_mut().expect("an executor");
        let run_at = if self.way == Way::Here { RunAt::Client } else { RunAt::Adaptive };
        let placed = PlacedFunction::new(self.functions[function], function, self.module.clone(), run_at)
            .expect("its own module");
        let called = local.invoke(&placed, here, key, arguments);
        let end = |_| end_with(local, |finished| finished.result.map(<[u8]>::to_vec)).map_err(error_of);
        let ran = End::of(called.and_then(end));
        assert_eq!(invoked, ran, "{name} of {key:?} with {arguments:?}");
        matches!(ran, End::Reply(_))
    }

    /// Compares the tables.
    fn compare(&mut self) {
        fn held(client: &mut Client, tables: [u32; 2]) -> Vec<(usize, Vec<u8>, Vec<u8>)> {
            let mut objects = Vec::new();
            for (number, table) in tables.into_iter().enumerate() {
                let listed = client.enumerate(table).map(|object| object.expect("a page"));
                objects.extend(listed.map(|object| (number, object.key, object.value)));
            }
            objects.sort();
            objects
        }
        let tables = self.tables;
        let invoked = held(&mut self.server, tables[0]);
        assert_eq!(invoked, self.with_client(|client| held(client, tables[1])));
    }
}

fn noise(random: &mut Rng, bytes_max: usize) -> Vec<u8> {
    (0..random.usize(0..=bytes_max)).map(|_| random.u8(..)).collect()
}

#[test]
fn small_functions_are_equal_at_both_ends() {
    each_way(|server, runtime, way, random| {
        let mut noop = Sides::new(server, runtime, way, "noop");
        let mut get = Sides::new(server, runtime, way, "get");
        let mut put = Sides::new(server, runtime, way, "put");
        for _ in 0..rounds(50, 500) {
            noop.call("noop", TABLE, &noise(random, 40), &noise(random, 5_000));
            put.call("put", random.usize(0..3), &[random.u8(..8)], &noise(random, 300));
            get.put(&[random.u8(..8)], &noise(random, 300));
            get.call("get", random.usize(0..3), &[random.u8(..8)], &noise(random, 3));
        }
        put.compare();
    });
}

#[test]
fn batches_of_reads_are_equal_at_both_ends() {
    each_way(|server, runtime, way, random| {
        let mut aggregate = Sides::new(server, runtime, way, "aggregate");
        let mut checksum = Sides::new(server, runtime, way, "checksum");
        let keys: Vec<Vec<u8>> = (0..100u32).map(|number| format!("{number:030}").into_bytes()).collect();
        for key in &keys {
            let value = noise(random, 200);
            aggregate.put(key, &value);
            checksum.put(key, &value);
        }
        for round in 0..rounds(40, 400) {
            let count = [0, 1, 3, 64, 65, 200][round % 6];
            let listed: Vec<&Vec<u8>> = (0..count).map(|_| &keys[random.usize(..keys.len())]).collect();
            aggregate.put(b"list", &listed.iter().flat_map(|key| key.iter().copied()).collect::<Vec<u8>>());
            aggregate.call("aggregate", TABLE, b"list", &noise(random, 6));
            aggregate.call("aggregate", TABLE, b"list", b"");
            let lengths = |key: &&Vec<u8>| [&(key.len() as u16).to_le_bytes(), &key[..]].concat();
            let each: Vec<u8> = listed.iter().flat_map(lengths).collect();
            for function in ["checksum", "checksum_each"] {
                checksum.call(function, TABLE, b"", &each);
                checksum.call(function, TABLE, b"", &noise(random, 60));
            }
        }
    });
}

#[test]
fn scans_and_queues_are_equal_at_both_ends() {
    each_way(|server, runtime, way, random| {
        let mut scan = Sides::new(server, runtime, way, "scan");
        for round in 0..rounds(150, 1_500) {
            let prefix = &b"queue"[..random.usize(0..=5)];
            match random.u8(..6) {
                0..=2 => scan.call("push", ORDERED, prefix, &noise(random, 2_000)),
                3 => scan.call("pop", ORDERED, prefix, b""),
                4 => scan.call("count", ORDERED, prefix, b""),
                _ => {
                    let order = [&random.u32(0..300).to_le_bytes()[..], &[random.u8(..2)]].concat();
                    scan.call("scan", [ORDERED, TABLE][usize::from(round % 17 == 0)], prefix, &order)
                }
            };
        }
        scan.compare();
    });
}

#[test]
fn a_graph_is_equal_at_both_ends() {
    each_way(|server, runtime, way, random| {
        let mut tao = Sides::new(server, runtime, way, "tao");
        let joined = |parts: &[&[u8]]| parts.concat();
        let number = |random: &mut Rng, most| random.u32(..most).to_le_bytes();
        let time = |random: &mut Rng| random.u64(..1_000).to_le_bytes();
        tao.call("assoc_declare", TABLE, &joined(&[b"t", &1u32.to_le_bytes()]), &2u32.to_le_bytes());
        for id in 0..20u64 {
            let arguments = joined(&[&7u32.to_le_bytes(), &noise(random, 30)]);
            tao.call("obj_add", TABLE, &joined(&[b"o", &id.to_le_bytes()]), &arguments);
        }
        let (mut answered, calls) = (0, rounds(400, 4_000));
        for _ in 0..calls {
            let [id, other] = [(); 2].map(|()| random.u64(..24).to_le_bytes());
            let kind = random.u32(1..4).to_le_bytes();
            let (object, list) = (joined(&[b"o", &id]), joined(&[b"l", &id, &kind]));
            let latest = u64::MAX.to_le_bytes();
            let (function, key, arguments) = match random.u8(..12) {
                0 => ("obj_get", object, Vec::new()),
                1 => ("assoc_get", list, joined(&[&latest, &time(random), &other, &id])),
                2 => ("assoc_range", list, joined(&[&number(random, 8), &number(random, 8)])),
                3 => {
                    let wanted = joined(&[&latest, &time(random), &number(random, 8)]);
                    ("assoc_time_range", list, wanted)
                }
                4 => ("assoc_count", list, Vec::new()),
                5 => ("friends", list, joined(&[&number(random, 8), &[random.u8(..2)]])),
                6 => {
                    let wanted = joined(&[&number(random, 8), &100u32.to_le_bytes(), &[random.u8(..2)]]);
                    ("friends_of_friends", list, wanted)
                }
                7 => ("obj_update", object, joined(&[&kind, &noise(random, 60)])),
                8 if random.u8(..4) == 0 => ("obj_delete", object, Vec::new()),
                9 => ("assoc_delete", list, other.to_vec()),
                10 => ("obj_get", noise(random, 12), noise(random, 12)),
                _ => ("assoc_add", list, joined(&[&other, &time(random), &noise(random, 40)])),
            };
            answered += usize::from(tao.call(function, TABLE, &key, &arguments));
        }
        tao.compare();
        assert!(answered > calls / 3, "most calls are meant to succeed: {answered}");
    });
}

#[test]
fn accounts_passwords_and_computations_are_equal_at_both_ends() {
    each_way(|server, runtime, way, random| {
        let mut accounts = Sides::new(server, runtime, way, "ycsbt");
        let mut auth = Sides::new(server, runtime, way, "auth");
        let mut spin = Sides::new(server, runtime, way, "spin");
        for _ in 0..rounds(150, 1_500) {
            let [account, other] = [(); 2].map(|()| random.u64(..6).to_le_bytes());
            let range = [&random.u64(..6).to_le_bytes()[..], &random.u32(..6).to_le_bytes()].concat();
            match random.u8(..6) {
                0 => accounts.call("open", TABLE, &account, &random.i64(-5..1_000).to_le_bytes()),
                1 => accounts.call("balance", TABLE, &account, b""),
                2 => accounts.call("sum", TABLE, b"", &range),
                3 => accounts.call("audit", TABLE, b"", &range),
                _ => {
                    let amount = random.i64(-5..300).to_le_bytes();
                    accounts.call("transfer", TABLE, &account, &[amount, other].concat())
                }
            };
        }
        accounts.compare();
        for round in 0..rounds(6, 60) {
            let (user, word) = ([random.u8(..2)], [random.u8(..2)]);
            auth.call(
                "set_password",
                TABLE,
                &user,
                &[&1_000u32.to_le_bytes()[..], &[round as u8; 16], &word].concat(),
            );
            auth.call("verify", TABLE, &user, &[random.u8(..2)]);
            auth.call("set_password", TABLE, &user, &noise(random, 30));
            spin.call("spin", TABLE, b"", &random.u64(..3_000_000).to_le_bytes());
            spin.call("touch", TABLE, b"absent", b"");
            let (first, next) = (random.u64(..4).to_le_bytes(), random.u64(..4).to_le_bytes());
            spin.put(&first, &next);
            let chased = [&random.u32(..9).to_le_bytes()[..], &random.u64(..900).to_le_bytes()].concat();
            spin.call("chase", TABLE, &next, &chased);
        }
        auth.compare();
    });
}

/// Each of these ends with the same status at the server and at the client, and other calls still work.
#[test]
fn misdeeds_end_the_same_way_at_both_ends() {
    each_way(|server, runtime, way, _| {
        let mut misbehave = Sides::new(server, runtime, way, "misbehave");
        misbehave.put(b"key", b"value");
        for function in [
            "spin",
            "spin_yielding",
            "loop_in_drop_at_the_end",
            "recurse",
            "recurse_into_the_host",
            "huge_frame",
            "allocate_forever",
            "grow_forever",
            "allocate_at_once",
            "panics",
            "panic_in_drop",
            "panic_while_it_says_why",
            "looping_drop",
            "index_beyond",
            "divide_by_zero",
            "reply_flood",
            "write_flood",
            "write_bulk",
            "delete_flood",
            "write_then_error",
            "sneak",
            "forget_future",
        ] {
            misbehave.call(function, TABLE, b"mark", b"must not be seen");
            misbehave.call("hold", TABLE, b"key", &3u32.to_le_bytes());
        }
        misbehave.compare();
    });
}
