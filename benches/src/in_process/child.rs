//! A measurement in a process of its own: the bench calls itself and reads a line of JSON.
//!
//! So none inherits the heap of another, and what is resident is the measurement's alone.

use std::process::Command;

use serde::de::DeserializeOwned;

use crate::in_process::settings::StoreSettings;

/// Measures `row` in a process of its own. `huge_heap`: whether the C library shall ask for huge pages for its heap.
pub fn call<T: DeserializeOwned>(settings: &StoreSettings, row: &str, huge_heap: bool) -> Result<T, String> {
    let own = std::env::current_exe().map_err(|error| format!("which program is this? {error}"))?;
    let joined = |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let mut command = Command::new(own);
    command.args(["store", "--row", row]);
    command.args(["--cores", &joined(&settings.cores), "--batch", &settings.batch.to_string()]);
    command.args(["--utilization", &settings.utilization.to_string(), "--seed", &settings.seed.to_string()]);
    command.args(["--seconds", &settings.seconds.to_string()]);
    command.args(["--memory-objects", &settings.memory_objects.to_string()]);
    if huge_heap {
        command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
    }
    let output = command.output().map_err(|error| format!("cannot start {row}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{row} failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("{row} said nothing useful: {error}"))
}

/// Says the answer, in the process of its own.
pub fn answer(answer: &impl serde::Serialize) -> Result<(), String> {
    println!("{}", serde_json::to_string(answer).map_err(|error| error.to_string())?);
    Ok(())
}
