//! Modules for those who run them elsewhere: a client that is to execute its tenant's functions itself.

use control::{ByteString, ExtensionModule, Subject};
use sandstorm::abi::wasm32::BORDER_VERSION;
use wire::{Status, TenantId};

use super::description;
use super::extensions::functions;
use super::grants;
use super::missing::unknown_extension;
use crate::control_plane::{Control, Refusal};
use crate::extension::Provenance;
use crate::limits::MODULE_PIECE_BYTES;

/// Returns the piece of a module that begins at `from`. The code of an extension that was granted stays where it is.
pub(super) fn read(
    control: &Control,
    tenant: TenantId,
    name: &str,
    (version, from): (u32, u64),
) -> Result<Vec<u8>, Refusal> {
    if grants::find(control, tenant, Subject::Extension, name).is_some() {
        let text = format!(
            "`{name}` belongs to another tenant: its code is not given away; invoke it at the server"
        );
        return Err(Refusal::new(Status::NotPermitted, text));
    }
    let history = control.registry.history(tenant, name).ok_or_else(|| unknown_extension(name))?;
    let installed = match version {
        0 => history.current(),
        _ => history.versions.get(&version),
    };
    let missing = || Refusal::new(Status::NotFound, format!("there is no version {version} of `{name}`"));
    let installed = installed.ok_or_else(missing)?;
    let unavailable = |why: &str| Refusal::new(Status::Unavailable, format!("`{name}` has no module: {why}"));
    let file = installed.portable.as_ref().ok_or_else(|| unavailable(installed.extension.no_module()))?;
    let (bytes, all_bytes) = file.part(from, MODULE_PIECE_BYTES).map_err(|why| {
        tracing::error!(tenant = tenant.0, name, why, "cannot read a module");
        let text = format!("the module of `{name}` cannot be read; the server's log has the reason");
        Refusal::new(Status::Unavailable, text)
    })?;
    if from > all_bytes {
        return Err(Refusal::new(Status::OutOfRange, format!("the module has only {all_bytes} bytes")));
    }
    Ok(control::encode(&ExtensionModule {
        extension: installed.extension.id,
        version: installed.extension.version,
        border: BORDER_VERSION,
        source_checked: installed.extension.provenance() == Provenance::CheckedSource,
        functions: functions(installed),
        limits: description::limits(&control.accounts.of(tenant)),
        sha256: file.sha256().to_owned(),
        all_bytes,
        bytes: ByteString(bytes),
    }))
}
