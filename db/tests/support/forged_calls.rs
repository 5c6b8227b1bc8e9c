//! A module with a function for each import that passes on whatever words it is called with, and the words that an
//! attacker tries: shared by the tests that run it in their own process and those that send it to a server.

use std::fmt::Write;

/// The end of a module's memory.
pub const END: u64 = 16 << 20;

/// Addresses: those of the call block, of data, of the host's parts, at the borders of the memory and of 32 bits; and
/// lengths: none, one, the limits of keys, values and lists, and all of the above.
pub const VALUES: [u64; 24] = [
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
pub struct Call {
    pub name: &'static str,
    pub types: &'static str,
    pub good: Vec<u64>,
    ranges: &'static [(usize, Option<usize>, u64)],
}

const KEY: (usize, Option<usize>, u64) = (2, Some(3), 1);
const ONE: u64 = 1.0_f64.to_bits();

/// Every import, with calls that succeed in a table and in one that keeps its keys in order.
pub fn calls(table: u64, ordered: u64) -> [Call; 12] {
    [
        Call {
            name: "get_read",
            types: "iiiii",
            good: vec![0, table, 65_536, 3, 70_000],
            ranges: &[KEY, (4, None, 16)],
        },
        Call {
            name: "get_many_read",
            types: "iiiii",
            good: vec![0, table, 65_600, 4, 70_000],
            ranges: &[(2, Some(3), 8), (4, Some(3), 16)],
        },
        Call {
            name: "scan_read",
            types: "iiiiii",
            good: vec![0, ordered, 66_200, 70_000, 8, 66_300],
            ranges: &[(2, None, 40), (5, None, 24)],
        },
        Call {
            name: "enumerate_read",
            types: "iiiiiii",
            good: vec![0, table, 65_536, 0, 70_000, 8, 66_400],
            ranges: &[KEY, (6, None, 80)],
        },
        Call {
            name: "put",
            types: "iiiiiiill",
            good: vec![0, table, 65_536, 3, 65_536, 3, 0, 0, u64::MAX],
            ranges: &[KEY, (4, Some(5), 1)],
        },
        Call { name: "delete", types: "iiiiil", good: vec![0, table, 65_536, 3, 0, 0], ranges: &[KEY] },
        Call {
            name: "increment",
            types: "iiiili",
            good: vec![0, table, 65_560, 6, 1, 70_000],
            ranges: &[KEY, (5, None, 8)],
        },
        Call {
            name: "increment_float",
            types: "iiiifi",
            good: vec![0, table, 65_570, 5, ONE, 70_000],
            ranges: &[KEY, (5, None, 8)],
        },
        Call {
            name: "table",
            types: "iiii",
            good: vec![0, 65_540, 5, 70_000],
            ranges: &[(1, Some(2), 1), (3, None, 4)],
        },
        Call { name: "log", types: "iii", good: vec![1, 65_536, 3], ranges: &[(1, Some(2), 1)] },
        Call { name: "now_ms", types: "", good: vec![], ranges: &[] },
        Call { name: "abandon", types: "iii", good: vec![0, 65_536, 3], ranges: &[(1, Some(2), 1)] },
    ]
}

impl Call {
    /// The name of the import.
    pub fn import(&self) -> &str {
        self.name.trim_end_matches("_read")
    }

    /// Whether it returns a code.
    pub fn has_result(&self) -> bool {
        !matches!(self.name, "log" | "abandon")
    }

    /// Whether a range leaves the memory.
    pub fn leaves(&self, arguments: &[u64]) -> bool {
        self.ranges.iter().any(|(address, length, bytes)| {
            let count = length.map_or(1, |length| arguments[length] & 0xffff_ffff);
            (arguments[*address] & 0xffff_ffff) + count * bytes > END
        })
    }
}

/// A module with a function for each import that passes on the words of its arguments and replies with the result.
pub fn text(calls: &[Call]) -> String {
    let (mut imports, mut functions) = (String::new(), String::new());
    for call in calls {
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
