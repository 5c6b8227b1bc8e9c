//! The server's address, the credentials and the output: from command line, environment or profile.
//!
//! Clap merges command line and environment; the profile, a TOML file of a few strings, supplies the rest. A secret may
//! be `@FILE`, which keeps it out of the process list and the profile.

use super::failure::{Failure, FailureKind};
use super::output::Output;
use clap::{Args, ValueEnum};
use client::{Admin, Client, ClientConfig, RequestDurability, Transport};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The server's address by default.
pub const ADDRESS: &str = "127.0.0.1:7700";

/// The options of every command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// Stream address HOST:PORT of the server; for a cluster several, separated by commas: the first that answers is
    /// used; default: 127.0.0.1:7700.
    #[arg(long, global = true, env = "SPLINTER_ADDRESS")]
    pub address: Option<String>,
    /// Tenant that makes the request; for `stats` with the administrator's secret, the tenant to report.
    #[arg(long, global = true, env = "SPLINTER_TENANT")]
    pub tenant: Option<String>,
    /// The tenant's secret, or @FILE to read it from.
    #[arg(long, global = true, env = "SPLINTER_SECRET", hide_env_values = true)]
    pub secret: Option<String>,
    /// The administrator's secret, or @FILE to read it from; for `tenant`, `stats`, `session`, `cluster`, `audit` and
    /// `archive`, where it goes before a tenant's.
    #[arg(long, global = true, env = "SPLINTER_ADMIN_SECRET", hide_env_values = true)]
    pub admin_secret: Option<String>,
    /// The profile file; default: ~/.config/splinter/profile.toml.
    #[arg(long, global = true, env = "SPLINTER_PROFILE")]
    pub profile: Option<PathBuf>,
    /// Transport of requests: auto uses shared memory with a server on this host if possible, else UDP; udp and shm
    /// force one.
    #[arg(long, global = true, env = "SPLINTER_TRANSPORT", value_enum, default_value = "auto")]
    pub transport: TransportOption,
    /// Output format: text for people, one JSON value for programs.
    #[arg(long, global = true, value_enum, default_value = "text")]
    pub output: Output,
}

/// The transport of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TransportOption {
    Auto,
    Udp,
    Shm,
}

/// The user's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    given: Global,
    profile: Profile,
    profile_path: PathBuf,
    durability: RequestDurability,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    address: Option<String>,
    tenant: Option<String>,
    secret: Option<String>,
    admin_secret: Option<String>,
}

impl Settings {
    /// Reads the profile; a file that the user named must exist.
    pub fn read(given: &Global) -> Result<Settings, Failure> {
        let path = given.profile.clone().unwrap_or_else(profile_path);
        let profile = match std::fs::read_to_string(&path) {
            Ok(text) => parse(&path, &text)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && given.profile.is_none() => {
                Profile::default()
            }
            Err(error) => {
                let what = format!("cannot read the profile {}: {error}", path.display());
                return Err(Failure::new(FailureKind::Local, what));
            }
        };
        let durability = RequestDurability::OfTable;
        Ok(Settings { given: given.clone(), profile, profile_path: path, durability })
    }

    /// Returns the settings with what the answers of tenants' requests wait for.
    pub fn with_durability(self, durability: RequestDurability) -> Settings {
        Settings { durability, ..self }
    }

    /// Connects as the tenant.
    pub fn connect(&self) -> Result<Client, Failure> {
        let (tenant, secret) = self.tenant()?;
        self.connect_as(&tenant, &secret)
    }

    /// Connects as this tenant.
    pub fn connect_as(&self, tenant: &str, secret: &str) -> Result<Client, Failure> {
        let transport = match self.given.transport {
            TransportOption::Auto => Transport::Auto,
            TransportOption::Udp => Transport::Udp,
            TransportOption::Shm => Transport::Shm,
        };
        let config = ClientConfig { transport, ..ClientConfig::default() };
        let mut client = Client::connect_with(self.address(), tenant, secret, config)?;
        client.session().set_durability(self.durability);
        Ok(client)
    }

    /// Connects as the administrator.
    pub fn connect_admin(&self) -> Result<Admin, Failure> {
        Ok(Admin::connect(self.address(), &self.admin_secret()?, ClientConfig::default())?)
    }

    /// Returns whether the administrator's secret is configured.
    pub fn is_admin(&self) -> bool {
        self.given.admin_secret.is_some() || self.profile.admin_secret.is_some()
    }

    /// Returns the tenant from command line or environment, not from the profile.
    pub fn given_tenant(&self) -> Option<&str> {
        self.given.tenant.as_deref()
    }

    /// Returns the output format.
    pub fn output(&self) -> Output {
        self.given.output
    }

    /// Returns the server's address.
    pub fn address(&self) -> &str {
        let given = self.given.address.as_ref().or(self.profile.address.as_ref());
        given.map_or(ADDRESS, String::as_str)
    }

    /// Returns the tenant and its secret.
    pub fn tenant(&self) -> Result<(String, String), Failure> {
        let missing = |what: &str, option: &str| {
            let next = format!(
                "give --{option}, set SPLINTER_{}, or write {option} = \"...\" to the profile {}",
                option.to_uppercase(),
                self.profile_path.display()
            );
            Failure::new(FailureKind::Local, format!("{what} is not known")).next(next)
        };
        let tenant = self.given.tenant.clone().or_else(|| self.profile.tenant.clone());
        let tenant = tenant.ok_or_else(|| missing("the tenant", "tenant"))?;
        let secret = self.given.secret.clone().or_else(|| self.profile.secret.clone());
        let secret = secret.ok_or_else(|| missing("the tenant's secret", "secret"))?;
        Ok((tenant, secret_of(&secret)?))
    }

    /// Returns the administrator's secret.
    pub fn admin_secret(&self) -> Result<String, Failure> {
        let secret = self.given.admin_secret.clone().or_else(|| self.profile.admin_secret.clone());
        let secret = secret.ok_or_else(|| {
            Failure::new(FailureKind::Local, "the administrator's secret is not known").next(
                "the server wrote it to the file admin.secret in its data directory at its first start: \
                 give --admin-secret @FILE or set SPLINTER_ADMIN_SECRET",
            )
        })?;
        secret_of(&secret)
    }
}

/// Returns the secret itself, or the first line of the file after `@`.
fn secret_of(text: &str) -> Result<String, Failure> {
    let Some(path) = text.strip_prefix('@') else { return Ok(text.to_owned()) };
    let content = std::fs::read_to_string(path).map_err(|error| {
        Failure::new(FailureKind::Local, format!("cannot read the secret in {path}: {error}"))
    })?;
    Ok(content.lines().next().unwrap_or("").trim().to_owned())
}

fn parse(path: &Path, text: &str) -> Result<Profile, Failure> {
    toml::from_str(text).map_err(|error| {
        Failure::new(
            FailureKind::Local,
            format!("the profile {} cannot be read: {}", path.display(), error.message()),
        )
        .next("it takes address, tenant, secret and admin_secret, each as name = \"value\"")
    })
}

fn profile_path() -> PathBuf {
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let config = config.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".config")));
    config.unwrap_or_default().join("splinter/profile.toml")
}

#[cfg(test)]
mod tests {
    use super::{Global, Settings, TransportOption};
    use crate::output::Output;
    use std::io::Write;

    fn global(profile: &str) -> (Global, tempfile::NamedTempFile) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(profile.as_bytes()).unwrap();
        let profile = Some(file.path().to_owned());
        let (address, tenant, secret, admin_secret) = (None, None, None, None);
        let (transport, output) = (TransportOption::Auto, Output::Text);
        (Global { address, tenant, secret, admin_secret, profile, transport, output }, file)
    }

    #[test]
    fn what_is_given_goes_before_the_profile() {
        let (mut given, _file) = global("address = \"127.0.0.1:1\"\ntenant = \"a\"\nsecret = \"s\"\n");
        given.tenant = Some("b".into());
        let settings = Settings::read(&given).unwrap();
        assert_eq!(settings.address(), "127.0.0.1:1");
        assert_eq!(settings.tenant().unwrap(), ("b".into(), "s".into()));
    }

    #[test]
    fn a_secret_may_lie_in_a_file() {
        let (mut given, file) = global("tenant = \"a\"\n");
        given.secret = Some(format!("@{}", file.path().display()));
        assert_eq!(Settings::read(&given).unwrap().tenant().unwrap().1, "tenant = \"a\"");
        given.secret = Some("@/no/such/file".into());
        assert!(Settings::read(&given).unwrap().tenant().is_err());
    }

    #[test]
    fn what_is_missing_is_named_with_the_ways_to_give_it() {
        let (given, _file) = global("");
        let settings = Settings::read(&given).unwrap();
        let text = settings.tenant().unwrap_err().to_string();
        assert!(text.contains("--tenant") && text.contains("SPLINTER_TENANT") && text.contains("profile"));
        assert!(settings.admin_secret().unwrap_err().to_string().contains("--admin-secret @FILE"));
    }

    #[test]
    fn a_profile_with_an_unknown_line_is_refused() {
        let (given, _file) = global("adress = \"127.0.0.1:1\"\n");
        assert!(Settings::read(&given).unwrap_err().to_string().contains("adress"));
    }
}
