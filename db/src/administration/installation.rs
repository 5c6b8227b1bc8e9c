//! Installs a tenant's extension: checks the tenant's limits, records the version, informs the workers.
//!
//! Two limits of the tenant apply. The processor time of its builds per minute is checked when its turn has come and
//! charged when the build has ended, successful or not. The bytes of its versions are checked before the build, for
//! whether there is any room, and once they are known. A version that has no module is refused if the tenant's invocations run as modules. A refused
//! installation changes nothing.

use std::sync::MutexGuard;

use cluster::metadata::ExtensionRow;
use control::{ExtensionInstalled, PackageFile, Placement};
use wire::Status;

use super::extensions::{milliseconds, owned, publish, refusal};
use crate::control_plane::{Control, Refusal};
use crate::extension::allowance::{Allowance, Sandbox};
use crate::extension::registry::InstallHooks;
use crate::session::Session;
use crate::sync::lock;
use crate::tenant::compile_time::NoTime;
use crate::tenant::limit::{TenantLimit, UNLIMITED};

/// An installation and its progress.
struct Installation<'c> {
    control: &'c Control,
    session: &'c Session,
    name: &'c str,
    placement: Placement,
    installed_ms: u64,
    package: &'c [u8],
    changing: Option<MutexGuard<'c, ()>>,
    row: Option<ExtensionRow>,
}

/// Installs a package. `package` is the whole body of the request, which is stored and compiled again after a restart.
pub(super) fn install(
    control: &Control,
    session: &Session,
    (name, files, placement): (&str, &[PackageFile<'_>], Placement),
    package: &[u8],
) -> Result<Vec<u8>, Refusal> {
    let installed_ms = control.clock.wall_ms();
    let (changing, row) = (None, None);
    let mut installation =
        Installation { control, session, name, placement, installed_ms, package, changing, row };
    let built =
        control.registry.install_for(session.tenant, name, owned(files), installed_ms, &mut installation);
    let installed = built.map_err(refusal)?;
    let row = installation.row.take().ok_or(Status::Internal)?;
    publish(control, &row)?;
    drop(installation);
    let answer = ExtensionInstalled {
        extension: row.id,
        version: row.newest,
        current: row.state.current,
        compile_ms: milliseconds(installed.compile_ms),
        diagnostics: installed.warnings.clone(),
        no_module: Some(installed.extension.no_module().to_owned()),
    };
    Ok(control::encode(&answer))
}

impl InstallHooks for Installation<'_> {
    type Refusal = Refusal;

    fn admit(&mut self) -> Result<(), Refusal> {
        let account = &self.session.account;
        let limit = TenantLimit::CompileMsPerMinute;
        let admitted = account.compile_time.admit(account.limit(limit), self.control.clock.now_us());
        admitted.map_err(|no_time| match no_time {
            NoTime::For(wait_us) => Refusal::throttled(wait_us, limit),
            NoTime::Ever => over_quota(limit, "the tenant may not install extensions"),
        })?;
        self.check_code(1)
    }

    fn spent(&mut self, processor_ms: u64) {
        let account = &self.session.account;
        let per_minute = account.limit(TenantLimit::CompileMsPerMinute);
        account.compile_time.spend(per_minute, self.control.clock.now_us(), processor_ms);
    }

    fn record(&mut self, artefact_bytes: u64, no_module: &str) -> Result<(u32, u32), Refusal> {
        self.changing = Some(lock(&self.control.changing));
        if self.session.is_closed() {
            // The tenant may have been dropped while this was compiled.
            return Err(Status::BadToken.into());
        }
        self.check_code(artefact_bytes)?;
        self.check_module(no_module)?;
        let tenant = self.session.tenant;
        let metadata = &self.control.metadata;
        let row =
            metadata.extension_install(tenant, self.name, self.placement, self.installed_ms, self.package)?;
        let numbers = (row.id, row.newest);
        self.row = Some(row);
        Ok(numbers)
    }
}

impl Installation<'_> {
    /// Refuses a version that would not run in the tenant's form.
    fn check_module(&self, no_module: &str) -> Result<(), Refusal> {
        if no_module.is_empty() || Allowance::of(&self.session.account).sandbox != Sandbox::Wasm {
            return Ok(());
        }
        let text = format!("`{}` has no module to run with sandbox=wasm: {no_module}", self.name);
        Err(Refusal::new(Status::Unavailable, text))
    }

    /// Checks that the tenant's versions and one of this size fit its limit, not counting those that this one
    /// replaces.
    fn check_code(&self, artefact_bytes: u64) -> Result<(), Refusal> {
        let limit = TenantLimit::CodeBytes;
        let most = self.session.account.limit(limit);
        if most == UNLIMITED {
            return Ok(());
        }
        let tenant = self.session.tenant;
        let before = self.control.metadata.extension_find(tenant, self.name)?;
        let leaving = before.map(|mut row| row.state.install(row.newest + 1, self.placement));
        let kept = self.control.registry.code_bytes(tenant, self.name, &leaving.unwrap_or_default());
        if kept.saturating_add(artefact_bytes) <= most {
            return Ok(());
        }
        let text = format!(
            "the kept versions use {kept} of {most} bytes, and this one does not fit: remove some with \
             `splinter ext remove NAME@VERSION`"
        );
        Err(over_quota(limit, &text))
    }
}

fn over_quota(limit: TenantLimit, text: &str) -> Refusal {
    Refusal::new(Status::OverQuota, format!("{}: {text}", limit.name()))
}
