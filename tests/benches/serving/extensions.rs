//! Extensions of `ext/`, compiled and loaded as an installation does. The check runs in the bench's own program, whose
//! `main` begins with `builder::child_main`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use benches::options::SandboxOption;
use builder::{Package, Toolchain};
use clap::ValueEnum;
use db::extension::Extension;
use db::extension::registry::Registry;
use db::tenant::account::Accounts;
use db::tenant::limit::TenantLimit;
use wire::TenantId;

use crate::worker::TENANT;

/// A registry of extensions, the form in which they run, and the folder that it builds in.
pub struct Extensions {
    registry: Registry,
    sandbox: SandboxOption,
    _folder: Option<tempfile::TempDir>,
}

impl Extensions {
    /// An empty registry that builds in a folder of its own; its extensions run in this form.
    pub fn new(sandbox: SandboxOption) -> Extensions {
        let folder = tempfile::tempdir().expect("a folder");
        let registry = Extensions::within(folder.path().to_owned(), sandbox).registry;
        Extensions { registry, sandbox, _folder: Some(folder) }
    }

    /// An empty registry that builds in this folder, and finds there what was built before.
    pub fn within(cache: PathBuf, sandbox: SandboxOption) -> Extensions {
        let prepare = move || Toolchain::prepare(&cache);
        let registry = Registry::open_with(Box::new(prepare), Accounts::default()).expect("a registry");
        Extensions { registry, sandbox, _folder: None }
    }

    /// The extension `ext/<name>` of the one tenant under the number `id`.
    pub fn load(&self, name: &str, id: u32) -> Arc<Extension> {
        self.load_copy(name, TENANT, id, 0)
    }

    /// The extension `ext/<name>` of a tenant; copies of different numbers are artefacts of their own.
    pub fn load_copy(&self, name: &str, tenant: TenantId, id: u32, copy: u64) -> Arc<Extension> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the root");
        let package = Package::from_directory(&root.join("ext").join(name)).expect("a package");
        let mark = format!("// {copy}\n");
        let file = |(path, bytes): (&str, &[u8])| {
            let added = if path == "src/lib.rs" { mark.as_bytes() } else { b"" };
            (path.to_owned(), [bytes, added].concat())
        };
        let files = package.files().map(file).collect();
        let installed = self.registry.install::<String>(tenant, name, files, 0, || Ok((id, 1)));
        let extension = Arc::clone(&installed.unwrap_or_else(|error| panic!("{name}: {error}")).extension);
        if self.sandbox == SandboxOption::Wasm {
            assert_eq!(extension.no_module(), "", "{name} runs as a module");
        }
        extension.account.set_limit(TenantLimit::Sandbox, self.sandbox.value());
        extension
    }
}

/// Takes `--sandbox FORM` out of the words of a command line; the form is wasm if they have none.
pub fn take_sandbox(words: &mut Vec<String>) -> SandboxOption {
    let Some(at) = words.iter().position(|word| word == "--sandbox") else { return SandboxOption::Wasm };
    assert!(at + 1 < words.len(), "a form follows --sandbox");
    let form = words.drain(at..at + 2).next_back().unwrap_or_default();
    SandboxOption::from_str(&form, false).expect("a form is native or wasm")
}
