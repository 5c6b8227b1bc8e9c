//! The extensions that workloads invoke, to be installed where a bench has started the server itself.
//!
//! They are packed as `splinter ext install ext/NAME` does it, from the folder `ext` where the bench is started, or from
//! that of the sources that it was built from.

use std::path::{Path, PathBuf};

use builder::Package;
use client::{Client, PackageFile};

/// Of the sources of this program.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ext");

/// Installs the extension of that name and returns its id.
///
/// # Errors
/// When its source is not there, or the server does not take it.
pub fn install(client: &mut Client, name: &str) -> Result<u32, String> {
    let package = pack(name)?;
    let files = package.files().map(|(path, text)| PackageFile { path, bytes: text.as_bytes() }).collect();
    let installed = client.extension_install(name, files);
    installed.map(|installed| installed.extension).map_err(|error| format!("cannot install {name}: {error}"))
}

fn pack(name: &str) -> Result<Package, String> {
    let folders = ["ext", SOURCES].map(|folder| Path::new(folder).join(name));
    let found: Option<&PathBuf> = folders.iter().find(|folder| folder.is_dir());
    let folder =
        found.ok_or_else(|| format!("there is no ext/{name}: start in the folder of the sources"))?;
    Package::from_directory(folder).map_err(|error| format!("{name} cannot be packed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::pack;
    use crate::workload::Workload;
    use clap::ValueEnum;

    #[test]
    fn what_workloads_invoke_can_be_packed() {
        for name in Workload::value_variants().iter().filter_map(|workload| workload.extension()) {
            let package = pack(name).expect("its source is here");
            assert!(package.files().any(|(_, text)| text.contains("sandstorm::extension!")), "{name}");
        }
        assert!(pack("nowhere").is_err_and(|why| why.contains("ext/nowhere")));
    }
}
