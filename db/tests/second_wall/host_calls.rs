//! Forged offsets and lengths in every argument of every import.
//!
//! Each argument takes each of [`VALUES`], and so does each pair of arguments, while the others are those of a call that
//! succeeds. A range that is not within the memory must never be answered with success; everything else may be any
//! error, or the end of the attacker.

use db::extension::Provenance;
use wire::Status;

use crate::forged_calls::{Call, VALUES, calls, text};
use crate::stage::{Stage, attacker, module, rounds, words};
use crate::worker::{ORDERED, TABLE};

struct Table {
    stage: Stage,
    extension: std::sync::Arc<db::extension::Extension>,
    calls: u64,
}

impl Table {
    fn new() -> Self {
        let calls = calls(TABLE.into(), ORDERED.into());
        let names = calls.each_ref().map(|call| call.name);
        let extension = attacker(&module(&text(&calls), &names, Provenance::Unknown));
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
    let calls = calls(TABLE.into(), ORDERED.into());
    let mut table = Table::new();
    for _ in 0..rounds() {
        for call in &calls {
            let (status, code) = table.call(call, &call.good);
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
    let calls = calls(TABLE.into(), ORDERED.into());
    let mut table = Table::new();
    for call in &calls {
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
                        let mut arguments = call.good.clone();
                        (arguments[*other], arguments[*first]) = (*with, value);
                        table.attack(call, &arguments);
                    }
                }
            }
        }
        for (place, _) in words_of('l').chain(words_of('f')) {
            for value in [1, u64::MAX, 1 << 63, i64::MAX as u64, f64::NAN.to_bits(), f64::INFINITY.to_bits()]
            {
                let mut arguments = call.good.clone();
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
    let calls = calls(TABLE.into(), ORDERED.into());
    let mut random = fastrand::Rng::with_seed(seed);
    let mut table = Table::new();
    for _ in 0..200 * rounds() {
        let call = &calls[random.usize(..calls.len())];
        let mut arguments = call.good.clone();
        for argument in &mut arguments {
            let near = VALUES[random.usize(..VALUES.len())].wrapping_add(random.u64(..17)).wrapping_sub(8);
            *argument = [*argument, near, random.u64(..)][random.usize(..3)];
        }
        table.attack(call, &arguments);
    }
}
