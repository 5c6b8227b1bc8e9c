//! The live extensions, by tenant and name, in all kept versions: installed from source or as a finished module,
//! removed, described.
//!
//! Control threads call this module; workers never do. An installation is built (crate `builder`, in its sandbox),
//! loaded, recorded by the caller, and then made visible; a failure at any step leaves the earlier versions in place.
//! Identical source is built once and loaded once, whichever tenant installs it. The caller chooses the current version
//! with [`Registry::set_choice`].
//!
//! A version that is no longer kept stays here until no worker and no invocation refers to it, so that a control
//! thread, never a worker, unmaps its code. [`Registry::collect`] does that.

mod canary;
mod installation;
mod turns;
mod version_history;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use builder::{Artefact, BuildError, Package, Toolchain};
use wire::TenantId;

use super::log::ExtensionLog;
use super::native::{Library, LoadError};
use super::version_metrics::VersionMetrics;
use super::{ActiveVersions, Extension, Provenance};
use crate::tenant::account::Accounts;
pub use canary::{Failing, Worse};
pub use installation::{InstallError, InstallHooks, Prepare};
use installation::{LazyToolchain, Unlimited};
use turns::Turns;
pub use version_history::{Choice, Installed, VersionHistory};

/// The versions of a granted extension, by number.
///
/// A grant has its own [`Extension`] for each version: the owner's code with the other tenant's tables and log. So
/// execution needs no rule about grants: the reach is the caller's by construction. The registry keeps them, so that
/// only a control thread unmaps code here too.
type Granted = BTreeMap<u32, Arc<Extension>>;

#[derive(Debug, Default)]
struct Live {
    extensions: BTreeMap<(TenantId, String), VersionHistory>,
    /// The loaded libraries, by content hash: another one of the same if a module came later.
    libraries: HashMap<String, Vec<Weak<Library>>>,
    logs: HashMap<TenantId, Arc<ExtensionLog>>,
    /// Granted extensions, by the number of the grant.
    granted: HashMap<u32, Granted>,
    retired: Vec<Arc<Extension>>,
}

/// The live extensions of all tenants.
pub struct Registry {
    toolchain: Arc<LazyToolchain>,
    turns: Turns,
    accounts: Accounts,
    live: Mutex<Live>,
}

impl Registry {
    /// Creates an empty registry that builds in `directory`. Sources are checked by this program, started again in the
    /// sandbox: its `main` begins with [`builder::child_main`].
    ///
    /// # Errors
    /// When the directory cannot be made or no thread can be started.
    pub fn open(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let directory = directory.to_owned();
        Self::open_with(Box::new(move || Toolchain::prepare(&directory)), Accounts::default())
    }

    /// Creates an empty registry that builds with the toolchain from `prepare`. A thread of its own calls `prepare`
    /// now. Without a toolchain, every installation tries again and then reports the failure; everything else works.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn open_with(prepare: Prepare, accounts: Accounts) -> io::Result<Self> {
        let toolchain = Arc::new(LazyToolchain::new(prepare));
        let early = Arc::clone(&toolchain);
        let prepare = move || {
            if let Err(error) = early.get() {
                tracing::warn!(%error, "extensions cannot be installed");
            }
        };
        thread::Builder::new().name("toolchain".to_owned()).spawn(prepare)?;
        Ok(Self { toolchain, turns: Turns::default(), accounts, live: Mutex::default() })
    }

    /// Like [`Registry::install_for`] for a source that was installed before: without limits, and only recorded.
    ///
    /// # Errors
    /// See [`InstallError`].
    pub fn install<E>(
        &self,
        tenant: TenantId,
        name: &str,
        files: Vec<(String, Vec<u8>)>,
        now_ms: u64,
        record: impl FnOnce() -> Result<(u32, u32), E>,
    ) -> Result<Arc<Installed>, InstallError<E>> {
        self.install_for(tenant, name, files, now_ms, &mut Unlimited(Some(record)))
    }

    /// Builds, loads and adds a version of `name`. `customer` records it after everything else has succeeded. The first
    /// version becomes current; [`Registry::set_choice`] decides about later ones. Takes 0.2 to 2 s of this thread, more
    /// while others build; installations of one tenant run one after another.
    ///
    /// # Errors
    /// See [`InstallError`].
    pub fn install_for<C: InstallHooks>(
        &self,
        tenant: TenantId,
        name: &str,
        files: Vec<(String, Vec<u8>)>,
        now_ms: u64,
        customer: &mut C,
    ) -> Result<Arc<Installed>, InstallError<C::Refusal>> {
        let source_bytes = files.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let package = Package::new(name, files)
            .map_err(|refusals| InstallError::Build(BuildError::Refused(refusals)))?;
        let _turn = self.turns.take(tenant).ok_or(InstallError::Busy)?;
        customer.admit().map_err(InstallError::Customer)?;
        let toolchain = self.toolchain.get().map_err(InstallError::Build)?.counting();
        let built =
            if customer.was_installed() { toolchain.rebuild(&package) } else { toolchain.build(&package) };
        customer.spent(toolchain.spent_ms());
        let artefact = built.map_err(InstallError::Build)?;
        let artefact_bytes = artefact.bytes();
        let library = self.library(&artefact, &toolchain).map_err(InstallError::Load)?;
        let no_module = library.module().err().unwrap_or_default();
        let (id, version) = customer.record(artefact_bytes, no_module).map_err(InstallError::Customer)?;
        let log = self.log(tenant);
        let extension = Extension::new(id, self.accounts.of(tenant), name, version, library, log);
        let installed = Arc::new(Installed {
            extension: Arc::new(extension),
            functions: artefact.functions,
            content_hash: artefact.content_hash,
            portable: artefact.portable,
            artefact_bytes,
            source_bytes,
            installed_ms: now_ms,
            compile_ms: artefact.compile_ms,
            warnings: artefact.warnings,
        });
        let mut live = self.live();
        let history = live.extensions.entry((tenant, name.to_owned())).or_insert_with(|| VersionHistory {
            versions: BTreeMap::new(),
            choice: Choice { current: version, canary: None, kept: vec![version] },
            baseline: None,
        });
        let before = history.versions.insert(version, Arc::clone(&installed));
        live.retire(before);
        Ok(installed)
    }

    /// Sets which versions are kept and which ones invocations get. Versions that are no longer kept are retired;
    /// running invocations end on their code. Returns the set for the workers; `None` if the extension does not exist
    /// or its current version is not loaded.
    pub fn set_choice(&self, tenant: TenantId, name: &str, choice: Choice) -> Option<ActiveVersions> {
        let mut live = self.live();
        let history = live.extensions.get_mut(&(tenant, name.to_owned()))?;
        let gone: Vec<_> =
            history.versions.extract_if(.., |version, _| !choice.kept.contains(version)).collect();
        history.choice = choice;
        history.compare_from_now();
        let active = history.active();
        for (_, installed) in gone {
            live.retire(Some(installed));
        }
        active
    }

    /// Removes an extension with all its versions. Running invocations end on its code. Returns false if it did not
    /// exist.
    pub fn remove(&self, tenant: TenantId, name: &str) -> bool {
        let mut live = self.live();
        let Some(removed) = live.extensions.remove(&(tenant, name.to_owned())) else { return false };
        for installed in removed.versions.into_values() {
            live.retire(Some(installed));
        }
        true
    }

    /// Removes all extensions of a tenant.
    pub fn remove_tenant(&self, tenant: TenantId) {
        for name in self.names(tenant) {
            self.remove(tenant, &name);
        }
        self.live().logs.remove(&tenant);
    }

    /// Updates another tenant's grant of `owner`'s extension `name` to the owner's versions, under the number `id` and
    /// the name `called`. Returns the set for the workers; `None` if it cannot be invoked at present.
    pub fn grant(
        &self,
        (owner, name): (TenantId, &str),
        id: u32,
        to: TenantId,
        called: &str,
    ) -> Option<ActiveVersions> {
        let account = self.accounts.of(to);
        let mut live = self.live();
        let log = live.logs.entry(to).or_default().clone();
        let mut before = live.granted.remove(&id).unwrap_or_default();
        let history = live.extensions.get(&(owner, name.to_owned())).cloned();
        let versions = history.iter().flat_map(|history| &history.versions);
        let after: Granted = versions
            .map(|(version, installed)| {
                let fresh =
                    || Arc::new(installed.extension.granted(id, account.clone(), called, Arc::clone(&log)));
                (*version, before.remove(version).unwrap_or_else(fresh))
            })
            .collect();
        live.retire_granted(before);
        let active = history.and_then(|history| history.active_of(|version| after.get(&version).cloned()));
        live.granted.insert(id, after);
        active
    }

    /// Ends a grant: retires its versions.
    pub fn revoke(&self, id: u32) {
        let mut live = self.live();
        if let Some(granted) = live.granted.remove(&id) {
            live.retire_granted(granted);
        }
    }

    /// Returns the current version of an extension.
    #[must_use]
    pub fn find(&self, tenant: TenantId, name: &str) -> Option<Arc<Installed>> {
        self.history(tenant, name)?.current().cloned()
    }

    /// Returns an extension with all its versions.
    #[must_use]
    pub fn history(&self, tenant: TenantId, name: &str) -> Option<VersionHistory> {
        self.live().extensions.get(&(tenant, name.to_owned())).cloned()
    }

    /// Checks the canaries; returns those that fail, with their tenants and names. A canary fails by its times only if it did so in the
    /// check before too.
    #[must_use]
    pub fn check_canaries(&self) -> Vec<(TenantId, String, Failing)> {
        let mut live = self.live();
        let failing = live.extensions.iter_mut().filter_map(|((tenant, name), history)| {
            history.check_canary().map(|failing| (*tenant, name.clone(), failing))
        });
        failing.collect()
    }

    /// Returns the metrics of all versions, by owner, name and version.
    #[must_use]
    pub fn metrics(&self) -> Vec<(TenantId, String, u32, Arc<VersionMetrics>)> {
        let live = self.live();
        let versions = live.extensions.iter().flat_map(|((tenant, name), history)| {
            let metrics = |installed: &Installed| Arc::clone(&installed.extension.metrics);
            let of = move |(version, installed): (&u32, &Arc<Installed>)| {
                (*tenant, name.clone(), *version, metrics(installed))
            };
            history.versions.iter().map(of)
        });
        versions.collect()
    }

    /// Returns the artefact bytes of a tenant's loaded versions, except the versions `without` of `name`. Each version
    /// counts, though identical source is loaded once.
    #[must_use]
    pub fn code_bytes(&self, tenant: TenantId, name: &str, without: &[u32]) -> u64 {
        let live = self.live();
        let own = (tenant, String::new())..(TenantId(tenant.0 + 1), String::new());
        let versions = live.extensions.range(own).flat_map(|((_, extension), history)| {
            let goes = move |version: &u32| extension == name && without.contains(version);
            history.versions.iter().filter(move |(version, _)| !goes(version))
        });
        versions.map(|(_, installed)| installed.artefact_bytes).sum()
    }

    /// Returns the names of a tenant's extensions, in order.
    #[must_use]
    pub fn names(&self, tenant: TenantId) -> Vec<String> {
        let own = (tenant, String::new())..(TenantId(tenant.0 + 1), String::new());
        self.live().extensions.range(own).map(|entry| entry.0.1.clone()).collect()
    }

    /// Returns the log of a tenant's extensions.
    #[must_use]
    pub fn log(&self, tenant: TenantId) -> Arc<ExtensionLog> {
        Arc::clone(self.live().logs.entry(tenant).or_default())
    }

    /// Unloads versions that are neither kept nor used. To be called periodically.
    pub fn collect(&self) {
        let unused: Vec<_> = {
            let mut live = self.live();
            let is_unused = |extension: &mut Arc<Extension>| Arc::strong_count(extension) == 1;
            let unused = live.retired.extract_if(.., is_unused).collect();
            live.libraries.retain(|_, loaded| loaded.iter().any(|library| library.strong_count() > 0));
            unused
        };
        // Code is unmapped here, outside of the lock.
        drop(unused);
    }

    /// Returns the number of retired versions that are not unloaded yet.
    #[must_use]
    pub fn retired(&self) -> usize {
        self.live().retired.len()
    }

    fn library(&self, artefact: &Artefact, toolchain: &Toolchain) -> Result<Arc<Library>, LoadError> {
        let mut live = self.live();
        let loaded = live.libraries.entry(artefact.content_hash.clone()).or_default();
        let known: Vec<_> = loaded.iter().filter_map(Weak::upgrade).collect();
        if let Some(library) = known.iter().find(|library| library.module().is_ok()) {
            return Ok(Arc::clone(library));
        }
        let library = match (known.first(), self.module(artefact)) {
            // An earlier build could not make the module. The shared object is open already.
            // SAFETY: as in `load`.
            (Some(library), Ok(bytes)) => unsafe { Library::clone(library).with_module(&bytes) },
            (Some(library), Err(_)) => return Ok(Arc::clone(library)),
            (None, module) => Self::load(artefact, module, &toolchain.sdk_hash())?,
        };
        let library = Arc::new(library);
        loaded.retain(|library| library.strong_count() > 0);
        loaded.push(Arc::downgrade(&library));
        Ok(library)
    }

    /// Returns the machine code of an artefact's module, if this process runs modules.
    fn module(&self, artefact: &Artefact) -> Result<Vec<u8>, String> {
        self.toolchain.modules().and_then(|()| artefact.code.module()?.read())
    }

    /// Loads both forms of an artefact, or its only one.
    fn load(
        artefact: &Artefact,
        module: Result<Vec<u8>, String>,
        sdk_hash: &[u8; 32],
    ) -> Result<Library, LoadError> {
        let Some(object) = artefact.code.object() else {
            let bytes = module.map_err(LoadError::Unavailable)?;
            // SAFETY: the builder of this process gave the artefact now, after it had built it or found it under its
            // name, a hash over SDK and package; these bytes were compared with the hash that it wrote beside them.
            return unsafe { Library::of_module(&artefact.functions, &bytes, Provenance::Unknown) };
        };
        // SAFETY: as above; the builder has compared the file with its hash.
        let library = unsafe { Library::open(object, sdk_hash) }?.documented(&artefact.functions);
        match module {
            // SAFETY: as above.
            Ok(bytes) => Ok(unsafe { library.with_module(&bytes) }),
            Err(why) => Ok(library.without_module(&why)),
        }
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Live {
    fn retire(&mut self, installed: Option<Arc<Installed>>) {
        if let Some(installed) = installed {
            installed.extension.retire();
            self.retired.push(Arc::clone(&installed.extension));
        }
    }

    fn retire_granted(&mut self, granted: Granted) {
        for extension in granted.into_values() {
            extension.retire();
            self.retired.push(extension);
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Registry").field("live", &self.live).finish_non_exhaustive()
    }
}
