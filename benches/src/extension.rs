//! The extensions that workloads invoke, to be installed where a bench has started the server itself.
//!
//! Their sources are those of `ext/`, as they were when this program was built.

use client::{Client, PackageFile};

/// Name, manifest and source of each.
const PACKAGES: [(&str, &str, &str); 4] = [
    ("noop", include_str!("../../ext/noop/Cargo.toml"), include_str!("../../ext/noop/src/lib.rs")),
    ("get", include_str!("../../ext/get/Cargo.toml"), include_str!("../../ext/get/src/lib.rs")),
    (
        "aggregate",
        include_str!("../../ext/aggregate/Cargo.toml"),
        include_str!("../../ext/aggregate/src/lib.rs"),
    ),
    ("tao", include_str!("../../ext/tao/Cargo.toml"), include_str!("../../ext/tao/src/lib.rs")),
];

/// Installs the extension of that name and returns its id.
///
/// # Errors
/// When the server does not take it.
pub fn install(client: &mut Client, name: &str) -> Result<u32, String> {
    let found = PACKAGES.iter().find(|package| package.0 == name);
    let (_, manifest, source) = found.ok_or_else(|| format!("there is no extension {name}"))?;
    let files = vec![
        PackageFile { path: "Cargo.toml", bytes: manifest.as_bytes() },
        PackageFile { path: "src/lib.rs", bytes: source.as_bytes() },
    ];
    let installed = client.extension_install(name, files);
    installed.map(|installed| installed.extension).map_err(|error| format!("cannot install {name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::PACKAGES;
    use crate::workload::Workload;
    use clap::ValueEnum;

    #[test]
    fn what_workloads_invoke_can_be_installed() {
        for name in Workload::value_variants().iter().filter_map(|workload| workload.extension()) {
            let package = PACKAGES.iter().find(|package| package.0 == name).expect("its source is here");
            assert!(package.2.contains("sandstorm::extension!"), "{name}");
        }
    }
}
