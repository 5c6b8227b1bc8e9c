//! What it costs a worker to make an instance of the largest modules: a module that traps each time makes it so often.
//!
//! Nothing of it can be interrupted, so it must be short. The times are printed; that they stay small is a matter of the
//! builder's limits, which are attacked there.

use std::time::Instant;

use db::extension::Provenance;
use wire::Status;

use crate::stage::{Stage, attacker, module, rounds};

fn text(more: &str) -> String {
    format!(
        "(module (memory (export \"memory\") 256 256) (global (export \"__heap_base\") i32 (i32.const 327680))
            {more} (func (export \"run_f\") (param i32) (result i64) unreachable))"
    )
}

#[test]
fn an_instance_of_a_large_module_is_made_in_little_time() {
    let data = "d".repeat(250_000);
    for (name, more) in [
        ("nothing", String::new()),
        ("data of 250 KB", format!("(data (i32.const 65536) \"{data}\")")),
        ("1,000 segments of data", "(data (i32.const 65536) \"d\")".repeat(1_000)),
        (
            "1,000 segments of elements",
            format!("(table 10000 10000 funcref) {}", "(elem (i32.const 9000) 0 0 0)".repeat(1_000)),
        ),
        ("1,000 globals", "(global (mut i64) (i64.const 7))".repeat(999)),
        ("9,000 functions", "(func)".repeat(9_000)),
    ] {
        let began = Instant::now();
        let extension = attacker(&module(&text(&more), &["f"], Provenance::Unknown));
        println!("{name}: compiled and loaded in {:?}", began.elapsed());
        let mut stage = Stage::new();
        let mut taken: Vec<_> = (0..rounds())
            .map(|_| {
                let began = Instant::now();
                assert_eq!(stage.attack(&extension, "f", b"").0, Status::ExtensionPanicked);
                began.elapsed()
            })
            .collect();
        taken.sort_unstable();
        println!("{name}: an attack beside the victim takes {:?}", taken[taken.len() / 2]);
    }
}
