//! `splinter tenant`: the administrator's commands about tenants; a tenant can show its own limits.

use super::failure::{Failure, FailureKind};
use super::limits;
use super::options::TenantCommand;
use super::output::{Answer, table_of, thousands};
use super::settings::Settings;
use serde_json::json;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Runs a command about tenants.
pub fn run(settings: &Settings, command: TenantCommand) -> Result<Answer, Failure> {
    match command {
        TenantCommand::Create { name, secret_file } => {
            let secret = settings.connect_admin()?.tenant_create(&name)?;
            hand_over("created", &name, &secret, secret_file.as_deref())
        }
        TenantCommand::Rotate { name, secret_file } => {
            let secret = settings.connect_admin()?.tenant_rotate(&name)?;
            hand_over("gave a new secret to", &name, &secret, secret_file.as_deref())
        }
        TenantCommand::List => {
            let tenants = settings.connect_admin()?.tenant_list()?;
            let heads = ["tenant", "tables", "extensions", "sessions", "objects", "bytes"];
            let (mut rows, mut values) = (Vec::new(), Vec::new());
            for tenant in tenants {
                let counts = [tenant.tables, tenant.extensions, tenant.sessions].map(u64::from);
                let mut row = vec![tenant.name.clone()];
                row.extend(counts.into_iter().chain([tenant.objects, tenant.bytes]).map(thousands));
                rows.push(row);
                values.push(json!({
                    "tenant": tenant.name, "tables": tenant.tables, "extensions": tenant.extensions,
                    "sessions": tenant.sessions, "objects": tenant.objects, "bytes": tenant.bytes,
                }));
            }
            Ok(Answer::new(table_of(&heads, rows), json!(values)))
        }
        TenantCommand::Drop { name } => {
            settings.connect_admin()?.tenant_drop(&name)?;
            Ok(Answer::new(format!("dropped {name}"), json!({ "dropped": name })))
        }
        TenantCommand::Limits { name, set, reset, force } => {
            limits::run(settings, name.as_deref(), &set, &reset, force)
        }
    }
}

/// Shows a new secret, or writes it to a file.
fn hand_over(done: &str, name: &str, secret: &str, file: Option<&Path>) -> Result<Answer, Failure> {
    let Some(path) = file else {
        return Ok(Answer::new(format!("{secret}\n"), json!({ "tenant": name, "secret": secret })));
    };
    write_secret(path, secret).map_err(|error| {
        let what = format!("{done} {name}, but {} cannot be written: {error}", path.display());
        Failure::new(FailureKind::Local, what)
            .next(format!("`splinter tenant rotate {name}` makes another secret"))
    })?;
    let text = format!("{done} {name}; the secret is in {}", path.display());
    Ok(Answer::new(text, json!({ "tenant": name, "secret_file": path })))
}

/// Writes a secret to a file that only its owner can read.
pub fn write_secret(path: &Path, secret: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    // An existing file keeps its mode: restrict it before writing the secret.
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    writeln!(file, "{secret}")?;
    file.sync_all()
}
