//! Extensions of one tenant: list, switch between versions, remove, resolve.
//!
//! An installation (`installation.rs`) is compiled without any lock of the control plane. Once it is built and loaded,
//! one step under the lock records it and informs the workers; a failure before that leaves the earlier versions
//! unchanged. Every switch takes the same steps: the metadata, the registry, all workers, then the client's answer.

use std::sync::{Arc, MutexGuard};

use cluster::metadata::{ExtensionRow, VersionState, VersionStateError};
use control::{
    AdminRequest, ExtensionEntry, ExtensionResolved, FunctionEntry, FunctionMode, PackageFile, Subject,
    VersionEntry,
};
use wire::{BodyReader, Status, TenantId};

use super::grants;
use super::missing::{if_missing, unknown_extension};
use crate::control_plane::{Control, Refusal};
use crate::extension::registry::{Choice, InstallError, InstallHooks, Installed};
use crate::sync::lock;
use crate::view::change::Change;

/// Paths and bytes of a source.
type Files = Vec<(String, Vec<u8>)>;

/// Publishes the versions of an extension to the registry and the workers.
pub(super) fn publish(control: &Control, row: &ExtensionRow) -> Result<(), Refusal> {
    let VersionState { current, canary, kept, .. } = row.state.clone();
    match control.registry.set_choice(row.tenant, &row.name, Choice { current, canary, kept }) {
        Some(active) => control.tell(&Change::ExtensionSettled(Arc::new(active)))?,
        // Its current version could not be built when the server started.
        None => control.tell(&Change::ExtensionRemoved(row.id))?,
    }
    grants::follow(control, row.tenant, &row.name)?;
    control.registry.collect();
    Ok(())
}

/// Builds or finds the artefacts of a stored extension and loads it. A version that can no longer be built is reported
/// and left out.
///
/// # Errors
/// If the metadata cannot be read, or workers fail.
pub(super) fn restore(control: &Control, row: &ExtensionRow) -> Result<(), Refusal> {
    for version in &row.state.kept {
        if let Err(refusal) = restore_version(control, row, *version) {
            let (name, version) = (&row.name, *version);
            tracing::error!(name, version, %refusal, "an installed extension is not available");
        }
    }
    publish(control, row)
}

fn restore_version(control: &Control, row: &ExtensionRow, version: u32) -> Result<(), Refusal> {
    let (files, installed_ms) = stored(control, row, version)?;
    let record = || Ok::<_, Refusal>((row.id, version));
    control.registry.install(row.tenant, &row.name, files, installed_ms, record).map_err(refusal)?;
    Ok(())
}

/// Returns the source of a stored version, and the time of its installation.
fn stored(control: &Control, row: &ExtensionRow, version: u32) -> Result<(Files, u64), Refusal> {
    let stored = control.metadata.extension_version(row.tenant, &row.name, version)?;
    Ok((owned(&files_of(&stored.package)?), stored.installed_ms))
}

/// Returns the files of a stored package: the body of its installation. Earlier versions of the server stored a name
/// (u16 of length, text), a u16 of count, and per file a path (u16, text) and bytes (u32, bytes).
pub(super) fn files_of(package: &[u8]) -> Result<Vec<PackageFile<'_>>, Status> {
    let of_a_map = package.first().is_some_and(|byte| byte & 0x80 != 0);
    if of_a_map {
        return match AdminRequest::decode(package)? {
            AdminRequest::ExtensionInstall { files, .. } => Ok(files),
            _ => Err(Status::Internal),
        };
    }
    let mut reader = BodyReader::new(package);
    reader.text()?;
    let count = reader.u16()?;
    (0..count).map(|_| Ok(PackageFile { path: reader.text()?, bytes: reader.blob()? })).collect()
}

/// Adopts a version that another server installed: like an installation, it is built without any lock, and published
/// under the lock of changes if it is still wanted then.
///
/// # Errors
/// `NotFound` if it is no longer wanted, or the reason why it cannot be built.
pub(super) fn take_in(control: &Control, row: &ExtensionRow, version: u32) -> Result<(), Refusal> {
    let (files, installed_ms) = stored(control, row, version)?;
    let mut newcomer = Newcomer { control, row, version, wanted: None };
    control
        .registry
        .install_for(row.tenant, &row.name, files, installed_ms, &mut newcomer)
        .map_err(refusal)?;
    match newcomer.wanted.take() {
        Some((_changing, row)) => publish(control, &row),
        None => Ok(()),
    }
}

/// A version that another server installed.
struct Newcomer<'c> {
    control: &'c Control,
    row: &'c ExtensionRow,
    version: u32,
    /// The lock of changes, and the extension's record as it is now.
    wanted: Option<(MutexGuard<'c, ()>, ExtensionRow)>,
}

impl InstallHooks for Newcomer<'_> {
    type Refusal = Refusal;

    fn was_installed(&self) -> bool {
        true
    }

    fn record(&mut self, _: u64, _: &str) -> Result<(u32, u32), Refusal> {
        let changing = lock(&self.control.changing);
        let ExtensionRow { id, tenant, name, .. } = self.row;
        let now = self.control.metadata.extension_find(*tenant, name)?;
        let wanted = now.filter(|now| now.id == *id && now.state.kept.contains(&self.version));
        let wanted = wanted.ok_or(Status::NotFound)?;
        self.wanted = Some((changing, wanted));
        Ok((*id, self.version))
    }
}

pub(super) fn list(control: &Control, tenant: TenantId) -> Result<Vec<u8>, Refusal> {
    // Waits for a switch under way, so that the answer shows the versions in force.
    let _changing = lock(&control.changing);
    let rows = control.metadata.extensions_of(tenant)?;
    let entry = |row: &ExtensionRow| {
        let history = control.registry.history(tenant, &row.name);
        let loaded = |version: u32| history.as_ref()?.versions.get(&version);
        let versions = row.state.kept.iter().map(|&version| VersionEntry {
            version,
            installed_ms: loaded(version).map_or(0, |installed| installed.installed_ms),
        });
        ExtensionEntry {
            extension: row.id,
            name: row.name.clone(),
            state: control::VersionState::from(&row.state),
            functions: loaded(row.state.current).map_or(0, |installed| installed.functions.len() as u32),
            versions: versions.collect(),
        }
    };
    Ok(control::encode(&rows.iter().map(entry).collect::<Vec<_>>()))
}

/// Applies a rule of [`VersionState`] that changes the versions or the choice among them.
pub(super) fn change(
    control: &Control,
    tenant: TenantId,
    name: &str,
    rule: impl Fn(&mut VersionState) -> Result<(), VersionStateError>,
) -> Result<Vec<u8>, Refusal> {
    let _changing = lock(&control.changing);
    let row = control
        .metadata
        .extension_change(tenant, name, rule)
        .map_err(if_missing(|| unknown_extension(name)))?;
    publish(control, &row)?;
    Ok(control::encode(&control::VersionState::from(&row.state)))
}

pub(super) fn resolve(control: &Control, tenant: TenantId, name: &str) -> Result<Vec<u8>, Refusal> {
    // Under the number by which the caller may invoke it: its own, or that of a grant.
    let granted = grants::find(control, tenant, Subject::Extension, name);
    let found = match &granted {
        Some(grant) => control.registry.find(grant.row.owner, &grant.row.name),
        None => control.registry.find(tenant, name),
    };
    let installed = found.ok_or_else(|| unknown_extension(name))?;
    let resolved = ExtensionResolved {
        extension: granted.map_or(installed.extension.id, |grant| grant.row.id),
        version: installed.extension.version,
        functions: functions(&installed),
    };
    Ok(control::encode(&resolved))
}

pub(super) fn remove(control: &Control, tenant: TenantId, name: &str) -> Result<Vec<u8>, Refusal> {
    let _changing = lock(&control.changing);
    let removed = control.metadata.extension_remove(tenant, name);
    let id = removed.map_err(if_missing(|| unknown_extension(name)))?;
    forget(control, tenant, name, id)?;
    Ok(Vec::new())
}

/// Removes an extension and its grants. Its metadata is gone already.
pub(super) fn forget(control: &Control, tenant: TenantId, name: &str, id: u32) -> Result<(), Refusal> {
    let withdrawn = grants::withdraw_all_of(control, tenant, Subject::Extension, name);
    control.registry.remove(tenant, name);
    control.tell(&Change::ExtensionRemoved(id))?;
    withdrawn
}

pub(super) fn functions(installed: &Installed) -> Vec<FunctionEntry> {
    let entry = |function: &builder::Function| FunctionEntry {
        name: function.name.clone(),
        hash: function.hash(),
        mode: match function.mode {
            builder::Mode::Read => FunctionMode::Read,
            builder::Mode::Write => FunctionMode::Write,
        },
        doc: function.doc.clone(),
    };
    installed.functions.iter().map(entry).collect()
}

pub(super) fn owned(files: &[PackageFile<'_>]) -> Files {
    files.iter().map(|file| (file.path.to_owned(), file.bytes.to_vec())).collect()
}

pub(super) fn refusal(error: InstallError<Refusal>) -> Refusal {
    match error {
        InstallError::Customer(refusal) => refusal,
        other => Refusal::new(other.status().unwrap_or(Status::Internal), other.to_string()),
    }
}

pub(super) fn milliseconds(duration: u64) -> u32 {
    u32::try_from(duration).unwrap_or(u32::MAX)
}
