//! The operator of a run: makes the tenants that it needs, and gives them tables and extensions.
//!
//! The benches of isolation are about several tenants, so they hold the administrator's secret. Tenants that an
//! earlier run has left are dropped and made anew, and all are dropped at the end: nothing of a run stays.
//!
//! The extensions that workloads invoke are packed as `splinter ext install ext/NAME` does it, from the folder `ext` where
//! the bench is started, or from that of the sources that it was built from.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use builder::Package;
use clap::Args;
use client::{Admin, Client, Error, LimitChange, MigrationMode, MigrationPhase, PackageFile, Status};
use serde::Serialize;

use crate::options::{Access, DurabilityOption, SandboxOption, admin, check_runs};

/// Between two looks at a migration.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Extensions among the sources of this program.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ext");

/// Server, operator and duration of a run.
#[derive(Args, Clone, Debug, Serialize)]
pub struct OperatorSettings {
    /// Stream address HOST:PORT of the server.
    #[arg(long, env = "SPLINTER_ADDRESS", default_value = "127.0.0.1:7700")]
    #[serde(skip)]
    pub address: SocketAddr,
    /// The administrator's secret, or @FILE to read it from.
    #[arg(long, env = "SPLINTER_ADMIN_SECRET", hide_env_values = true)]
    #[serde(skip)]
    pub admin_secret: String,
    /// Pin the load thread to this core.
    #[arg(long)]
    pub cpu: Option<usize>,
    /// Process id of the server, to report its memory and how long its worker waited for a core.
    #[arg(long)]
    #[serde(skip)]
    pub server_process: Option<u32>,
    /// Folder for lines of JSON and plots.
    #[arg(long)]
    #[serde(skip)]
    pub out: Option<PathBuf>,
    /// Seconds of each row in a run.
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Seconds of warm-up.
    #[arg(long, default_value_t = 0.3)]
    pub warmup: f64,
    /// Number of runs; each measures all rows in turn, and the table shows medians.
    #[arg(long, default_value_t = 3)]
    pub runs: usize,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Form in which the tenants' invocations run.
    #[arg(long, value_enum, default_value = "wasm")]
    pub sandbox: SandboxOption,
    /// Durability of the tenants' tables.
    #[arg(long, value_enum, default_value = "memory")]
    pub durability: DurabilityOption,
}

impl OperatorSettings {
    /// Refuses settings that make no sense.
    pub fn check(&self) -> Result<(), String> {
        if self.warmup.is_nan() || self.warmup < 0.0 {
            return Err("a measurement has no negative warm-up".into());
        }
        check_runs(self.runs, self.seconds)
    }
}

/// A connection of the administrator, and the tenants it has made.
pub struct Operator {
    admin: Admin,
    address: SocketAddr,
    sandbox: SandboxOption,
    durability: DurabilityOption,
    made: Vec<String>,
}

/// A tenant that was made for a run.
pub struct Tenant {
    /// Where it opens sessions, and as whom.
    pub access: Access,
    /// Its own connection, for what it administers, over the transport that clients choose by themselves.
    pub client: Client,
}

impl Operator {
    /// Connects as the administrator.
    pub fn connect(settings: &OperatorSettings) -> Result<Self, String> {
        let admin = admin(settings.address, &settings.admin_secret)?;
        let &OperatorSettings { address, sandbox, durability, .. } = settings;
        Ok(Self { admin, address, sandbox, durability, made: Vec::new() })
    }

    /// Makes a tenant of the run's form, anew if there is one, and connects as it.
    pub fn tenant(&mut self, name: &str) -> Result<Tenant, String> {
        let created = match self.admin.tenant_create(name) {
            Err(Error::Refused { status: Status::AlreadyExists, .. }) => {
                self.admin.tenant_drop(name).and_then(|()| self.admin.tenant_create(name))
            }
            created => created,
        };
        let secret = created.map_err(|error| format!("no tenant {name}: {error}"))?;
        self.made.push(name.to_string());
        self.limit(name, SandboxOption::LIMIT, self.sandbox.value())?;
        let access = Access::new(self.address, name, secret, "data");
        let access = Access { durability: self.durability, ..access };
        let client = Client::connect(&self.address.to_string(), name, &access.secret)
            .map_err(|error| access.not_opened(&error))?;
        Ok(Tenant { access, client })
    }

    /// Changes a limit of a tenant.
    pub fn limit(&mut self, tenant: &str, limit: &str, value: u64) -> Result<(), String> {
        let change = LimitChange { limit, value: Some(value) };
        let changed = self.admin.tenant_limits_set(tenant, &[change]);
        changed.map(drop).map_err(|error| format!("{limit} of {tenant} cannot be {value}: {error}"))
    }

    /// Answers for the tenants that another one has made.
    pub fn take_over(&mut self, other: Operator) {
        self.made.extend(other.made);
    }

    /// Drops what was made.
    pub fn clean_up(mut self) -> Result<(), String> {
        for name in &self.made {
            self.admin.tenant_drop(name).map_err(|error| format!("{name} stays: {error}"))?;
        }
        Ok(())
    }
}

impl Tenant {
    /// Its table `data`, made if it is missing.
    pub fn table(&mut self) -> Result<u32, String> {
        self.access.table_id(&mut self.client)
    }

    /// Installs an extension of one source file; returns its id.
    pub fn install(&mut self, name: &str, source: &str) -> Result<u32, String> {
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
             [dependencies]\nsandstorm = {{ path = \"sandstorm\" }}\n"
        );
        let files = vec![
            PackageFile { path: "Cargo.toml", bytes: manifest.as_bytes() },
            PackageFile { path: "src/lib.rs", bytes: source.as_bytes() },
        ];
        install_files(&mut self.client, name, files)
    }
}

/// Moves hashes of a table to a server, and looks until it is over.
pub fn move_hashes(
    admin: &mut Admin,
    table: &str,
    hashes: RangeInclusive<u64>,
    (target, mode): (u32, MigrationMode),
) -> Result<(), String> {
    let failed = |error: Error| format!("the migration failed: {error}");
    let begun = loop {
        match admin.migration_begin(table, hashes.clone(), target, mode) {
            // The one before is not cleared away yet.
            Err(Error::Refused { status: Status::WrongTablets, .. }) => thread::sleep(LOOK_EVERY),
            begun => break begun.map_err(failed)?,
        }
    };
    loop {
        let list = admin.migration_list().map_err(failed)?;
        match list.iter().find(|entry| entry.id == begun.id).map(|entry| entry.phase) {
            None | Some(MigrationPhase::Finished) => break,
            Some(MigrationPhase::Ended) => return Err("the migration was undone".into()),
            Some(_) => thread::sleep(LOOK_EVERY),
        }
    }
    let tablets = admin.tablet_list().map_err(failed)?;
    let last = tablets.iter().find(|tablet| tablet.table == table && tablet.last == *hashes.end());
    match last.map(|tablet| tablet.server) {
        Some(server) if server == target => Ok(()),
        other => Err(format!("the migration is over, and the hashes are at {other:?}, not at {target}")),
    }
}

/// Installs the extension of that name and returns its id.
pub fn install(client: &mut Client, name: &str) -> Result<u32, String> {
    let package = pack(name)?;
    let files = package.files().map(|(path, bytes)| PackageFile { path, bytes }).collect();
    install_files(client, name, files)
}

fn install_files(client: &mut Client, name: &str, files: Vec<PackageFile<'_>>) -> Result<u32, String> {
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
            let root = package.file("src/lib.rs").expect("it has a root");
            assert!(root.contains("sandstorm::extension!"), "{name}");
        }
        assert!(pack("nowhere").is_err_and(|why| why.contains("ext/nowhere")));
    }
}
