//! Finished modules that attack: written by hand, seen by no check of sources, sent to a server as their author sends them.

use client::{Client, Error, LimitChange, PackageFile};
use tests::server::Server;

#[path = "../../../db/tests/support/forged_calls.rs"]
pub mod forged_calls;

/// Reads, writes, fills and searches its memory as its arguments say.
pub const TOOLS: &str = include_str!("../../../db/tests/modules/tools.wat");
/// Ends, waits and goes on in every way.
pub const ENDS: &str = include_str!("../../../db/tests/modules/ends.wat");

/// [`ENDS`], which scans this table.
pub fn ends(ordered: u32) -> String {
    let (before, after) = ("$scan (i32.const 0) (i32.const 2)", "$scan (i32.const 0) (i32.const");
    assert!(ENDS.contains(before), "the table that it scans is found");
    ENDS.replace(before, &format!("{after} {ordered})"))
}

/// The names of a module's functions.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    let exports = text.split("(export \"run_").skip(1);
    exports.map(|rest| rest.split_once('"').expect("a name has an end").0)
}

/// The list of functions for a module. All may write: a function that only reads runs again for each copy of its request
/// that arrives, and on a slow machine several copies of one invocation would hold memory at a time.
pub fn list<'n>(functions: impl Iterator<Item = &'n str>) -> String {
    let entry = |name: &str| format!("[[function]]\nname = \"{name}\"\nmode = \"write\"\n");
    "border = 1\n".to_owned() + &functions.map(entry).collect::<String>()
}

/// Installs a module from its text.
pub fn install(client: &mut Client, name: &str, text: &str) {
    let module = wat::parse_str(text).unwrap_or_else(|error| panic!("{error}"));
    send(client, name, &module, &list(functions(text))).expect("the check of modules has nothing against it");
}

/// Sends whatever bytes as a finished module; gives the version.
pub fn send(client: &mut Client, name: &str, module: &[u8], list: &str) -> Result<u32, Error> {
    let files = vec![
        PackageFile { path: "module.wasm", bytes: module },
        PackageFile { path: "functions.toml", bytes: list.as_bytes() },
    ];
    client.extension_install(name, files).map(|installed| installed.version)
}

/// Arguments of eight bytes each.
pub fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Sets limits of a tenant, as the operator does.
pub fn limit(server: &Server, tenant: &str, limits: &[(&str, u64)]) {
    let changes: Vec<_> =
        limits.iter().map(|(limit, value)| LimitChange { limit, value: Some(*value) }).collect();
    server.admin().tenant_limits_set(tenant, &changes).expect("the operator may");
}
