//! The extensions that are live, by tenant and name: installed from source, replaced, removed, described.
//!
//! Control threads come here; workers never do. An installation is built (crate `builder`, in its sandbox),
//! loaded, recorded by the caller, and only then visible; what fails on the way leaves the version before it
//! in place. Identical source is built once and loaded once, whoever installs it.
//!
//! A version that was replaced or removed is kept here until no worker and no invocation refers to it any
//! more, so that code is unmapped by a control thread and never by a worker. [`Registry::collect`] does that.

mod turns;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use builder::{Artefact, BuildError, Package, Toolchain};
use wire::Status;

use super::Extension;
use super::log::ExtensionLog;
use super::native::{Library, LoadError};
use crate::tenant::TenantId;
use turns::Turns;

/// Why an installation failed. `E` is what recording it can fail with. Nothing has changed then.
#[derive(Debug)]
pub enum InstallError<E> {
    /// It was not built.
    Build(BuildError),
    /// It was built and cannot be loaded.
    Load(LoadError),
    /// Too many installations wait already.
    Busy,
    /// The caller could not record it.
    Record(E),
}

impl<E> InstallError<E> {
    /// The status that says so on the wire; `None` when recording failed, which the caller knows better.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Build(BuildError::Refused(_) | BuildError::ImportRefused { .. }) => {
                Some(Status::SourceRefused)
            }
            Self::Build(BuildError::CompileFailed { .. } | BuildError::TimedOut { .. }) => {
                Some(Status::CompileFailed)
            }
            Self::Build(BuildError::SandboxMissing { .. } | BuildError::ToolchainMissing { .. }) => {
                Some(Status::Unavailable)
            }
            Self::Build(BuildError::DiskFull) => Some(Status::StorageFull),
            Self::Build(BuildError::Io { .. }) | Self::Load(_) => Some(Status::Internal),
            Self::Busy => Some(Status::LimitExceeded),
            Self::Record(_) => None,
        }
    }
}

impl<E: fmt::Display> fmt::Display for InstallError<E> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Build(error) => error.fmt(out),
            Self::Load(error) => error.fmt(out),
            Self::Busy => out.write_str("too many installations wait; try again later"),
            Self::Record(error) => error.fmt(out),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for InstallError<E> {}

/// A version of an extension with what is known about it.
#[derive(Debug)]
pub struct Installed {
    /// What workers get.
    pub extension: Arc<Extension>,
    /// Its functions as the builder describes them, doc comments included.
    pub functions: Vec<builder::Function>,
    /// Hash over source and SDK, in hex.
    pub content_hash: String,
    /// Bytes of the artefact.
    pub artefact_bytes: u64,
    /// Bytes of the source.
    pub source_bytes: u64,
    /// When it was installed, in milliseconds since the Unix epoch.
    pub installed_ms: u64,
    /// How long checking and compiling took; 0 when the same source had been built before.
    pub compile_ms: u64,
}

#[derive(Debug, Default)]
struct Live {
    extensions: BTreeMap<(TenantId, String), Arc<Installed>>,
    libraries: HashMap<String, Weak<Library>>,
    logs: HashMap<TenantId, Arc<ExtensionLog>>,
    retired: Vec<Arc<Installed>>,
}

/// Prepares the toolchain: called until it has succeeded once.
pub type Prepare = Box<dyn Fn() -> Result<Toolchain, BuildError> + Send + Sync>;

/// The toolchain, prepared when it is first needed.
struct Workshop {
    prepare: Prepare,
    toolchain: Mutex<Option<Arc<Toolchain>>>,
}

/// See the file's head.
pub struct Registry {
    workshop: Arc<Workshop>,
    turns: Turns,
    live: Mutex<Live>,
}

impl Registry {
    /// An empty registry that builds in `directory`. The check of sources runs in this program, started anew
    /// in the sandbox: its `main` begins with [`builder::child_main`].
    ///
    /// # Errors
    /// When the directory cannot be made or no thread can be started.
    pub fn open(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let directory = directory.to_owned();
        Self::open_with(Box::new(move || Toolchain::prepare(&directory)))
    }

    /// An empty registry that builds with whatever `prepare` gives. It is called on a thread of its own now;
    /// where there is no toolchain, installations say so, each after another try, and all else works.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn open_with(prepare: Prepare) -> io::Result<Self> {
        let workshop = Arc::new(Workshop { prepare, toolchain: Mutex::default() });
        let early = Arc::clone(&workshop);
        let prepare = move || {
            if let Err(error) = early.toolchain() {
                tracing::warn!(%error, "extensions cannot be installed");
            }
        };
        thread::Builder::new().name("toolchain".to_owned()).spawn(prepare)?;
        Ok(Self { workshop, turns: Turns::default(), live: Mutex::default() })
    }

    /// Builds, loads and publishes a version of `name`. `record` runs when everything else has succeeded: it
    /// stores the installation and gives number and version. Takes 0.2 to 2 s of this thread, more when
    /// others build; installations of one tenant come one after the other.
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
        let source_bytes = files.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let package = Package::new(name, files)
            .map_err(|refusals| InstallError::Build(BuildError::Refused(refusals)))?;
        let _turn = self.turns.take(tenant).ok_or(InstallError::Busy)?;
        let toolchain = self.workshop.toolchain().map_err(InstallError::Build)?;
        let artefact = toolchain.build(&package).map_err(InstallError::Build)?;
        let artefact_bytes = fs::metadata(&artefact.path).map_or(0, |file| file.len());
        let library = self.library(&artefact, &toolchain).map_err(InstallError::Load)?;
        let (id, version) = record().map_err(InstallError::Record)?;
        let log = self.log(tenant);
        let extension = Extension::new(id, tenant, name, version, library, log);
        let installed = Arc::new(Installed {
            extension: Arc::new(extension),
            functions: artefact.functions,
            content_hash: artefact.content_hash,
            artefact_bytes,
            source_bytes,
            installed_ms: now_ms,
            compile_ms: artefact.compile_ms,
        });
        let mut live = self.live();
        let before = live.extensions.insert((tenant, name.to_owned()), Arc::clone(&installed));
        live.retire(before);
        drop(live);
        self.collect();
        Ok(installed)
    }

    /// Takes an extension out. Invocations that run end on its code.
    pub fn remove(&self, tenant: TenantId, name: &str) -> Option<Arc<Installed>> {
        let mut live = self.live();
        let removed = live.extensions.remove(&(tenant, name.to_owned()))?;
        live.retire(Some(Arc::clone(&removed)));
        Some(removed)
    }

    /// Takes all extensions of a tenant out.
    pub fn remove_tenant(&self, tenant: TenantId) {
        let mut live = self.live();
        let names: Vec<_> = live.extensions.keys().filter(|key| key.0 == tenant).cloned().collect();
        for name in names {
            let removed = live.extensions.remove(&name);
            live.retire(removed);
        }
        live.logs.remove(&tenant);
    }

    /// The current version of an extension.
    #[must_use]
    pub fn find(&self, tenant: TenantId, name: &str) -> Option<Arc<Installed>> {
        self.live().extensions.get(&(tenant, name.to_owned())).cloned()
    }

    /// The current versions of a tenant's extensions, by name.
    #[must_use]
    pub fn list(&self, tenant: TenantId) -> Vec<Arc<Installed>> {
        let from = (tenant, String::new());
        let live = self.live();
        live.extensions
            .range(from..)
            .take_while(|entry| entry.0.0 == tenant)
            .map(|entry| entry.1.clone())
            .collect()
    }

    /// Where the extensions of a tenant log.
    #[must_use]
    pub fn log(&self, tenant: TenantId) -> Arc<ExtensionLog> {
        Arc::clone(self.live().logs.entry(tenant).or_default())
    }

    /// Unloads what was replaced or removed and is not used any more. To be called now and then.
    pub fn collect(&self) {
        let unused: Vec<_> = {
            let mut live = self.live();
            let is_unused = |installed: &mut Arc<Installed>| {
                Arc::strong_count(installed) == 1 && Arc::strong_count(&installed.extension) == 1
            };
            let unused = live.retired.extract_if(.., is_unused).collect();
            live.libraries.retain(|_, library| library.strong_count() > 0);
            unused
        };
        // Code is unmapped here, outside of the lock.
        drop(unused);
    }

    /// Versions that were replaced or removed and are not unloaded yet.
    #[must_use]
    pub fn retired(&self) -> usize {
        self.live().retired.len()
    }

    fn library(&self, artefact: &Artefact, toolchain: &Toolchain) -> Result<Arc<Library>, LoadError> {
        let mut live = self.live();
        if let Some(library) = live.libraries.get(&artefact.content_hash).and_then(Weak::upgrade) {
            return Ok(library);
        }
        // SAFETY: the builder of this process gave the path now, after it had built the file or checked it
        // against the hash that it wrote beside it; its name is a hash over SDK and source.
        let library = Arc::new(unsafe { Library::open(&artefact.path, &toolchain.sdk_hash()) }?);
        live.libraries.insert(artefact.content_hash.clone(), Arc::downgrade(&library));
        Ok(library)
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Live {
    fn retire(&mut self, installed: Option<Arc<Installed>>) {
        if let Some(installed) = installed {
            installed.extension.retire();
            self.retired.push(installed);
        }
    }
}

impl Workshop {
    /// The toolchain; whoever comes while it is being prepared waits.
    fn toolchain(&self) -> Result<Arc<Toolchain>, BuildError> {
        let mut slot = self.toolchain.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(toolchain) = &*slot {
            return Ok(Arc::clone(toolchain));
        }
        let toolchain = Arc::new((self.prepare)()?);
        *slot = Some(Arc::clone(&toolchain));
        Ok(toolchain)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Registry").field("live", &self.live).finish_non_exhaustive()
    }
}
