//! Forged offsets and lengths in every argument of every import.
//!
//! Each argument takes each of [`VALUES`], and so does each pair of arguments, while the others are those of a call that
//! succeeds. A range that is not within the memory must never be answered with success; everything else may be any
//! error, or the end of the attacker.

use std::fmt::Write;

use db::extension::Provenance;
use wire::Status;

use crate::stage::{Stage, attacker, module, rounds, words};
use crate::worker::{ORDERED, TABLE};

const END: u64 = 16 << 20;

/// Addresses: those of the call block, of data, of the host's parts, at the borders of the memory and of 32 bits; and
/// lengths: none, one, the limits of keys, values and lists, and all of the above.
const VALUES: [u64; 24] = [
    0,
    1,
    3,
    256,
    64,
    65,
    65_424,
    65_407,
    80_000,
    65_408,
    1 << 20,
    65_536,
    10 << 20,
    (1 << 20) + 1,
    END - 1,
    END - 16,
    END,
    END + 1,
    1 << 31,
    5 << 20,
    (1 << 32) - 8,
    (1 << 32) - 65_536,
    (1 << 32) - 1,
    4_097,
];

/// An import: its name, its types (f: a float), the arguments of a call that succeeds, and its ranges: the argument
/// that is the address, the one that is the length or none, and the bytes of each.
struct Call {
    name: &'static str,
    types: &'static str,
    good: &'static [u64],
    ranges: &'static [(usize, Option<usize>, u64)],
}

const KEY: (usize, Option<usize>, u64) = (2, Some(3), 1);
const TABLE_NUMBER: u64 = TABLE as u64;
const ORDERED_NUMBER: u64 = ORDERED as u64;
const ONE: u64 = 1.0_f64.to_bits();

const CALLS: [Call; 12] = [
    Call {
        name: "get_read",
        types: "iiiii",
        good: &[0, TABLE_NUMBER, 65_536, 3, 70_000],
        ranges: &[KEY, (4, None, 16)],
    },
    Call {
        name: "get_many_read",
        types: "iiiii",
        good: &[0, TABLE_NUMBER, 65_600, 4, 70_000],
        ranges: &[(2, Some(3), 8), (4, Some(3), 16)],
    },
    Call {
        name: "scan_read",
        types: "iiiiii",
        good: &[0, ORDERED_NUMBER, 66_200, 70_000, 8, 66_300],
        ranges: &[(2, None, 40), (5, None, 24)],
    },
    Call {
        name: "enumerate_read",
        types: "iiiiiii",
        good: &[0, TABLE_NUMBER, 65_536, 0, 70_000, 8, 66_400],
        ranges: &[KEY, (6, None, 80)],
    },
    Call {
        name: "put",
        types: "iiiiiiill",
        good: &[0, TABLE_NUMBER, 65_536, 3, 65_536, 3, 0, 0, u64::MAX],
        ranges: &[KEY, (4, Some(5), 1)],
    },
    Call { name: "delete", types: "iiiiil", good: &[0, TABLE_NUMBER, 65_536, 3, 0, 0], ranges: &[KEY] },
    Call {
        name: "increment",
        types: "iiiili",
        good: &[0, TABLE_NUMBER, 65_560, 6, 1, 70_000],
        ranges: &[KEY, (5, None, 8)],
    },
    Call {
        name: "increment_float",
        types: "iiiifi",
        good: &[0, TABLE_NUMBER, 65_570, 5, ONE, 70_000],
        ranges: &[KEY, (5, None, 8)],
    },
    Call {
        name: "table",
        types: "iiii",
        good: &[0, 65_540, 5, 70_000],
        ranges: &[(1, Some(2), 1), (3, None, 4)],
    },
    Call { name: "log", types: "iii", good: &[1, 65_536, 3], ranges: &[(1, Some(2), 1)] },
    Call { name: "now_ms", types: "", good: &[], ranges: &[] },
    Call { name: "abandon", types: "iii", good: &[0, 65_536, 3], ranges: &[(1, Some(2), 1)] },
];

impl Call {
    fn import(&self) -> &str {
        self.name.trim_end_matches("_read")
    }

    fn has_result(&self) -> bool {
        !matches!(self.name, "log" | "abandon")
    }

    /// Whether a range leaves the memory.
    fn leaves(&self, arguments: &[u64]) -> bool {
        self.ranges.iter().any(|(address, length, bytes)| {
            let count = length.map_or(1, |length| arguments[length] & 0xffff_ffff);
            (arguments[*address] & 0xffff_ffff) + count * bytes > END
        })
    }
}

/// A module with a function for each import that passes on the words of its arguments and replies with the result.
fn text() -> String {
    let (mut imports, mut functions) = (String::new(), String::new());
    for call in &CALLS {
        let (import, mut types, mut values) = (call.import(), String::new(), String::new());
        for (index, kind) in call.types.chars().enumerate() {
            let (kind, load) =
                [("i32", "i32"), ("i64", "i64"), ("f64", "f64")]["ilf".find(kind).expect("one of these")];
            let _ = write!(types, " {kind}");
            let _ = write!(values, " ({load}.load offset={} (local.get $arguments))", 8 * index);
        }
        let result = if call.has_result() { " (result i64)" } else { "" };
        let _ =
            writeln!(imports, "(import \"splinter\" \"{import}\" (func ${import} (param{types}){result}))");
        let called = format!("(call ${import}{values})");
        let called = if call.has_result() { format!("(local.set $code {called})") } else { called };
        let _ = writeln!(
            functions,
            "(func (export \"run_{}\") (param $call i32) (result i64)
                (local $arguments i32) (local $reply i32) (local $code i64)
                (local.set $arguments (i32.load offset=16 (local.get $call)))
                (local.set $reply (i32.load offset=24 (local.get $call)))
                {called}
                (i64.store (local.get $reply) (local.get $code))
                (i32.store offset=28 (local.get $call) (i32.const 8))
                (i64.const 0))",
            call.name
        );
    }
    let keys = "\\00\\00\\01\\00\\03\\00\\00\\00".repeat(64);
    format!(
        "(module {imports} (memory (export \"memory\") 256 256)
            (global (export \"__heap_base\") i32 (i32.const 80000))
            (data (i32.const 65536) \"key\\00table\") (data (i32.const 65560) \"number\\00\\00\\00\\00float\")
            (data (i32.const 65600) \"{keys}\") {functions})"
    )
}

struct Table {
    stage: Stage,
    extension: std::sync::Arc<db::extension::Extension>,
    calls: u64,
}

impl Table {
    fn new() -> Self {
        let names = CALLS.map(|call| call.name);
        let extension = attacker(&module(&text(), &names, Provenance::Unknown));
        let stage = Stage::new();
        stage.worker.put(b"key", &[7; 100]);
        Self { stage, extension, calls: 0 }
    }

    fn call(&mut self, call: &Call, arguments: &[u64]) -> (Status, Option<u64>) {
        self.calls += 1;
        let (status, body) = self.stage.attack(&self.extension, call.name, &words(arguments));
        let code =
            (status == Status::Ok).then(|| body[..].try_into().map(u64::from_le_bytes).expect("a code"));
        (status, code)
    }

    fn attack(&mut self, call: &Call, arguments: &[u64]) {
        let (status, code) = self.call(call, arguments);
        let said = || format!("{} {arguments:x?}: {status:?} {code:x?}", call.name);
        match status {
            Status::Ok if call.leaves(arguments) => {
                assert!(call.has_result() && code != Some(0), "a range outside succeeds: {}", said());
            }
            Status::Ok => assert_ne!(call.import(), "abandon", "it never returns"),
            Status::ExtensionOutOfMemory => assert_eq!(call.import(), "abandon", "{}", said()),
            Status::ExtensionPanicked => {}
            // What the function wrote is committed, or refused.
            Status::Conflict | Status::ConditionFailed | Status::NotANumber => {}
            _ => panic!("{}", said()),
        }
    }
}

#[test]
fn calls_with_right_arguments_succeed() {
    let mut table = Table::new();
    for _ in 0..rounds() {
        for call in &CALLS {
            let (status, code) = table.call(call, call.good);
            match call.import() {
                "abandon" => assert_eq!(status, Status::ExtensionPanicked),
                "now_ms" => assert_eq!((status, code), (Status::Ok, Some(1_700_000_000_000))),
                name => assert_eq!((status, code), (Status::Ok, Some(0)), "{name}"),
            }
        }
    }
}

#[test]
fn each_value_in_each_argument_and_each_pair_of_arguments_harms_the_attacker_alone() {
    let mut table = Table::new();
    for call in &CALLS {
        let words_of = |kind| call.types.chars().enumerate().filter(move |found| found.1 == kind);
        let addresses: Vec<_> = words_of('i').map(|found| found.0).collect();
        // Of pairs, each third value in ordinary runs.
        let pairs: Vec<_> = VALUES.into_iter().step_by(if rounds() > 20 { 1 } else { 3 }).collect();
        for (place, first) in addresses.iter().enumerate() {
            for other in &addresses[place..] {
                let (values, others) =
                    if first == other { (&VALUES[..], &[0][..]) } else { (&pairs[..], &pairs[..]) };
                for &value in values {
                    for with in others {
                        let mut arguments = call.good.to_vec();
                        (arguments[*other], arguments[*first]) = (*with, value);
                        table.attack(call, &arguments);
                    }
                }
            }
        }
        for (place, _) in words_of('l').chain(words_of('f')) {
            for value in [1, u64::MAX, 1 << 63, i64::MAX as u64, f64::NAN.to_bits(), f64::INFINITY.to_bits()]
            {
                let mut arguments = call.good.to_vec();
                arguments[place] = value;
                table.attack(call, &arguments);
            }
        }
    }
    println!("{} calls", table.calls);
}

#[test]
fn random_arguments_harm_the_attacker_alone() {
    let seed = std::env::var("SPLINTER_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_123);
    println!("SPLINTER_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut table = Table::new();
    for _ in 0..200 * rounds() {
        let call = &CALLS[random.usize(..CALLS.len())];
        let mut arguments = call.good.to_vec();
        for argument in &mut arguments {
            let near = VALUES[random.usize(..VALUES.len())].wrapping_add(random.u64(..17)).wrapping_sub(8);
            *argument = [*argument, near, random.u64(..)][random.usize(..3)];
        }
        table.attack(call, &arguments);
    }
}
