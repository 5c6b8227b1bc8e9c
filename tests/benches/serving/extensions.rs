//! Extensions of `ext/`, compiled and loaded as an installation does. The check runs in the bench's own program, whose
//! `main` begins with `builder::child_main`.

use std::path::Path;
use std::sync::Arc;

use builder::{Package, Toolchain};
use db::extension::Extension;
use db::extension::registry::Registry;
use db::tenant::account::Accounts;

use crate::worker::TENANT;

/// A registry of extensions, and the folder that it builds in.
pub struct Extensions {
    registry: Registry,
    _folder: tempfile::TempDir,
}

impl Extensions {
    /// An empty registry.
    pub fn new() -> Extensions {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = folder.path().to_owned();
        let prepare = move || Toolchain::prepare(&cache);
        let registry = Registry::open_with(Box::new(prepare), Accounts::default()).expect("a registry");
        Extensions { registry, _folder: folder }
    }

    /// The extension `ext/<name>` under the number `id`.
    pub fn load(&self, name: &str, id: u32) -> Arc<Extension> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the root");
        let package = Package::from_directory(&root.join("ext").join(name)).expect("a package");
        let files = package.files().map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec())).collect();
        let installed = self.registry.install::<String>(TENANT, name, files, 0, || Ok((id, 1)));
        Arc::clone(&installed.unwrap_or_else(|error| panic!("{name}: {error}")).extension)
    }
}
