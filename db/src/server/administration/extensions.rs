//! Extensions of one tenant: install, list, describe, remove, resolve.
//!
//! An installation is compiled without any lock of the control plane. Once it is built and loaded, one step
//! under the lock records it and tells the workers; what fails before that leaves the earlier version.

use wire::{
    AdminRequest, Body, ExtensionDescription, ExtensionEntry, ExtensionInstalled, ExtensionResolved,
    FunctionEntry, FunctionMode, PackageFile, Status, opcode,
};

use crate::cluster::metadata::ExtensionRow;
use crate::extension::registry::{InstallError, Installed};
use crate::server::change::Change;
use crate::server::control::{Control, Refusal, lock};
use crate::session::Session;
use crate::tenant::TenantId;

/// `package` is the whole body of the request: what is stored, and compiled again after a restart.
pub(super) fn install(
    control: &Control,
    session: &Session,
    name: &str,
    files: &[PackageFile<'_>],
    package: &[u8],
) -> Result<Vec<u8>, Refusal> {
    let (tenant, installed_ms) = (session.tenant, control.clock.wall_ms());
    let mut changing = None;
    let record = || {
        changing = Some(lock(&control.changing));
        if session.is_closed() {
            // The tenant may have been dropped while this was compiled.
            return Err(Refusal::from(Status::BadToken));
        }
        let (id, version) = control.metadata.extension_reserve(tenant, name)?;
        let (name, package) = (name.to_owned(), package.to_vec());
        control.metadata.extension_store(&ExtensionRow {
            id,
            tenant,
            name,
            version,
            installed_ms,
            package,
        })?;
        Ok((id, version))
    };
    let installed =
        control.registry.install(tenant, name, owned(files), installed_ms, record).map_err(refusal)?;
    let extension = &installed.extension;
    control.tell(&Change::ExtensionInstalled(extension.clone()))?;
    drop(changing);
    let answer = ExtensionInstalled {
        extension: extension.id,
        version: extension.version,
        compile_ms: milliseconds(installed.compile_ms),
        diagnostics: String::new(),
    };
    Ok(answer.encode())
}

/// Builds or finds the artefact of a stored installation and makes it live.
pub(super) fn restore(control: &Control, row: &ExtensionRow) -> Result<(), Refusal> {
    let request = AdminRequest::decode(opcode::EXTENSION_INSTALL, &row.package)?;
    let AdminRequest::ExtensionInstall { files, .. } = request else { return Err(Status::Internal.into()) };
    let record = || Ok::<_, Refusal>((row.id, row.version));
    let installed = control
        .registry
        .install(row.tenant, &row.name, owned(&files), row.installed_ms, record)
        .map_err(refusal)?;
    control.tell(&Change::ExtensionInstalled(installed.extension.clone()))
}

pub(super) fn list(control: &Control, tenant: TenantId) -> Vec<u8> {
    let entry = |installed: &Installed| ExtensionEntry {
        extension: installed.extension.id,
        version: installed.extension.version,
        name: installed.extension.name.to_string(),
        functions: installed.functions.len() as u32,
    };
    let entries: Vec<_> = control.registry.list(tenant).iter().map(|installed| entry(installed)).collect();
    entries.encode()
}

pub(super) fn describe(control: &Control, tenant: TenantId, name: &str) -> Result<Vec<u8>, Refusal> {
    let installed = control.registry.find(tenant, name).ok_or_else(|| unknown(name))?;
    let description = ExtensionDescription {
        extension: installed.extension.id,
        version: installed.extension.version,
        name: installed.extension.name.to_string(),
        content_hash: installed.content_hash.clone(),
        artefact_bytes: installed.artefact_bytes,
        source_bytes: installed.source_bytes,
        installed_ms: installed.installed_ms,
        compile_ms: milliseconds(installed.compile_ms),
        functions: functions(&installed),
    };
    Ok(description.encode())
}

pub(super) fn resolve(control: &Control, tenant: TenantId, name: &str) -> Result<Vec<u8>, Refusal> {
    let installed = control.registry.find(tenant, name).ok_or_else(|| unknown(name))?;
    let resolved = ExtensionResolved {
        extension: installed.extension.id,
        version: installed.extension.version,
        functions: functions(&installed),
    };
    Ok(resolved.encode())
}

pub(super) fn remove(control: &Control, tenant: TenantId, name: &str) -> Result<Vec<u8>, Refusal> {
    let _changing = lock(&control.changing);
    let id = control.metadata.extension_remove(tenant, name).map_err(|error| {
        let refusal = Refusal::from(error);
        if refusal.status == Status::NotFound { unknown(name) } else { refusal }
    })?;
    control.registry.remove(tenant, name);
    control.tell(&Change::ExtensionRemoved(id))?;
    Ok(Vec::new())
}

fn functions(installed: &Installed) -> Vec<FunctionEntry> {
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

fn owned(files: &[PackageFile<'_>]) -> Vec<(String, Vec<u8>)> {
    files.iter().map(|file| (file.path.to_owned(), file.bytes.to_vec())).collect()
}

fn refusal(error: InstallError<Refusal>) -> Refusal {
    match error {
        InstallError::Record(refusal) => refusal,
        other => Refusal::new(other.status().unwrap_or(Status::Internal), other.to_string()),
    }
}

fn unknown(name: &str) -> Refusal {
    Refusal::new(Status::UnknownExtension, format!("there is no extension `{name}`"))
}

fn milliseconds(duration: u64) -> u32 {
    u32::try_from(duration).unwrap_or(u32::MAX)
}
