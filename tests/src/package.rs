//! An extension of one file, as tests write it.

use client::{Client, Error, PackageFile, Placement};

/// Installs one file as an extension, under the name that is also its package's; gives the version.
pub fn install_source(client: &mut Client, name: &str, source: &str) -> Result<u32, Error> {
    install_source_as(client, name, source, Placement::Current)
}

/// As [`install_source`], for the invocations that `placement` selects.
pub fn install_source_as(
    client: &mut Client,
    name: &str,
    source: &str,
    placement: Placement,
) -> Result<u32, Error> {
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [dependencies]\nsandstorm = {{ path = \"sandstorm\" }}\n"
    );
    let files = vec![
        PackageFile { path: "Cargo.toml", bytes: manifest.as_bytes() },
        PackageFile { path: "src/lib.rs", bytes: source.as_bytes() },
    ];
    client.extension_install_as(name, files, placement).map(|installed| installed.version)
}
