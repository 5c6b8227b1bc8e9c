//! `splinter ext` and `splinter invoke`: writing, checking, installing and calling extensions.

mod description;
mod explain;
mod here;
mod logs;
mod versions;

use super::bytes::Bytes;
use super::failure::{Failure, FailureKind};
use super::object;
use super::options::{ExplainOptions, ExtensionCommand, RegressionOptions, RunsAt};
use super::output::Answer;
use super::settings::Settings;
use builder::package::DirectoryError;
use builder::{BuildError, Mode, Package, Refusal, Toolchain};
use client::{Client, PackageFile, Placement, RunAt, Status};
use serde_json::json;
use std::path::Path;

/// Runs a command about extensions.
pub fn run(settings: &Settings, command: ExtensionCommand) -> Result<Answer, Failure> {
    match command {
        ExtensionCommand::New { name } => create(&name),
        ExtensionCommand::Check { package } => check(&package),
        ExtensionCommand::Install { package, name, placement, regression } => {
            let placement = match (placement.pin, placement.canary) {
                (_, Some(percent)) => Placement::Canary(percent),
                (true, None) => Placement::Pinned,
                (false, None) => Placement::Current,
            };
            if let (Some(percent), Some(table)) = (regression.max_regression, regression.table) {
                let RegressionOptions { sample, function, arguments, .. } = regression;
                let (package, name) = (package.clone(), name.clone());
                let explained =
                    ExplainOptions { package, table, sample, function, arguments, rate: None, name };
                explain::refuse_regression(settings, &explained, percent)?;
            }
            install(&mut settings.connect()?, &package, name.as_deref(), placement)
        }
        ExtensionCommand::Explain(options) => explain::explain(settings, &options),
        ExtensionCommand::List => versions::list(&mut settings.connect()?),
        ExtensionCommand::Describe { name } => description::describe(&mut settings.connect()?, &name),
        ExtensionCommand::Logs { name, lines, level, follow } => {
            logs::run(settings, &name, lines, level, follow)
        }
        ExtensionCommand::Rollback { name, to } => versions::roll_back(&mut settings.connect()?, &name, to),
        ExtensionCommand::Pin { name, version, .. } => {
            versions::pin(&mut settings.connect()?, &name, version)
        }
        ExtensionCommand::Promote { name } => versions::promote(&mut settings.connect()?, &name),
        ExtensionCommand::Remove { name } => versions::remove(settings, &name),
    }
}

/// Calls a function.
pub fn invoke(
    settings: &Settings,
    function: &str,
    (table, key, arguments): (&str, &Bytes, &Bytes),
    version: Option<u32>,
    at: RunsAt,
) -> Result<Answer, Failure> {
    let name = version_named(function, version)?;
    let (key, arguments) = (key.read()?, arguments.read()?);
    let (mut client, id) = object::open(settings, table)?;
    let reply = match at {
        RunsAt::Server => client.invoke(&name, id, &key, &arguments)?,
        RunsAt::Client => here::run(client, &name, (id, &key, &arguments), RunAt::Client)?,
        RunsAt::Adaptive => here::run(client, &name, (id, &key, &arguments), RunAt::Adaptive)?,
    };
    Ok(Answer::bytes(&reply, object::value_of(&reply)))
}

/// Adds the version of `--version` to the name of a function.
fn version_named(function: &str, version: Option<u32>) -> Result<String, Failure> {
    let (Some(version), Some((extension, name))) = (version, function.rsplit_once('.')) else {
        return Ok(function.to_owned());
    };
    match extension.split_once('@') {
        None => Ok(format!("{extension}@{version}.{name}")),
        Some((_, named)) if named == version.to_string() => Ok(function.to_owned()),
        Some((_, named)) => Err(versions::two_versions(extension, named, "--version", version)),
    }
}

/// Sends a package to the server.
fn install(
    client: &mut Client,
    path: &Path,
    name: Option<&str>,
    placement: Placement,
) -> Result<Answer, Failure> {
    let package = pack(path, name)?;
    let name = package.name();
    let files = package.files().map(|(path, bytes)| PackageFile { path, bytes }).collect();
    let installed = client.extension_install_as(name, files, placement)?;
    let version = installed.version;
    let compiled = match installed.compile_ms {
        0 => "compiled before".to_owned(),
        time_ms => format!("compiled in {time_ms} ms"),
    };
    let mut text = format!("installed {name}@{version} ({compiled})");
    if installed.current != version {
        text.push_str(&match placement {
            Placement::Canary(percent) => format!("; it gets {percent} of 100 invocations, the others go to"),
            _ => format!("; invoke it as {name}@{version}.FUNCTION; the pinned current version is"),
        });
        text.push_str(&format!(" {name}@{}", installed.current));
    }
    if let Some(why) = installed.no_module.as_deref().filter(|why| !why.is_empty()) {
        text.push_str(&format!(
            "\nwarning: this version does not run for a tenant with sandbox=wasm; {}",
            why.trim_end()
        ));
    }
    if package.is_finished() {
        text.push_str(&format!("\n{}", description::MODULE_ONLY));
    }
    if !installed.diagnostics.is_empty() {
        text.push_str(&format!("\n{}", installed.diagnostics.trim_end()));
    }
    let json = json!({
        "extension": name, "id": installed.extension, "version": installed.version,
        "current": installed.current, "compile_ms": installed.compile_ms, "diagnostics": installed.diagnostics,
        "wasm": description::module_value(installed.no_module.as_deref()),
    });
    Ok(Answer::new(text, json))
}

fn create(name: &str) -> Result<Answer, Failure> {
    let directory = Path::new(name);
    builder::template::write(directory, name).map_err(|error| {
        Failure::new(FailureKind::Local, format!("cannot write a new extension: {error}"))
    })?;
    let text = format!(
        "wrote {name}/: an extension with a unit test, and the SDK for testing it\n\
         test it:    cd {name} && cargo test\n\
         check it:   splinter ext check {name}\n\
         install it: splinter ext install {name}"
    );
    Ok(Answer::new(text, json!({ "directory": name })))
}

fn check(path: &Path) -> Result<Answer, Failure> {
    let package = pack(path, None)?;
    let checked = builder::check(&package).map_err(|refusals| refused(path, &refusals))?;
    let (warnings, uncompiled) = compile(path, &package)?;
    let mut text = format!("{} passes the check", package.name());
    text.push_str(match uncompiled {
        None => " and compiles\n",
        Some(_) => "; it was not compiled\n",
    });
    let mut functions = Vec::new();
    for function in &checked.functions {
        let mode = if function.mode == Mode::Read { "read" } else { "write" };
        text.push_str(&format!("{mode:<5} {}\n", function.name));
        functions.push(json!({ "function": function.name, "mode": mode, "doc": function.doc }));
    }
    if package.is_finished() {
        text.push_str(&format!("{}\n", description::MODULE_ONLY));
    }
    if !warnings.is_empty() {
        text.push_str(&format!("{warnings}\n"));
    }
    if let Some(why) = &uncompiled {
        text.push_str(&format!("compiler diagnostics come with the installation, as there is {why}\n"));
    }
    let json = json!({
        "extension": package.name(), "functions": functions, "diagnostics": warnings, "uncompiled": uncompiled,
    });
    Ok(Answer::new(text, json))
}

/// Returns the compiler's warnings; without a local compiler, none and the reason.
fn compile(path: &Path, package: &Package) -> Result<(String, Option<String>), Failure> {
    let error = match Toolchain::try_out(package) {
        Ok(warnings) => return Ok((warnings, None)),
        Err(error) => error,
    };
    match error {
        BuildError::SandboxMissing { .. }
        | BuildError::ToolchainMissing { .. }
        | BuildError::ModuleUnavailable { .. } => Ok((String::new(), Some(error.to_string()))),
        BuildError::Refused(refusals) => Err(refused(path, &refusals)),
        BuildError::DiskFull | BuildError::Io { .. } => {
            Err(Failure::new(FailureKind::Local, error.to_string()))
        }
        _ => {
            let what = format!("{} passes the check, but {error}", path.display());
            Err(Failure::new(FailureKind::Extension, what)
                .known_as(Status::CompileFailed)
                .next("fix the compiler's errors"))
        }
    }
}

fn pack(path: &Path, name: Option<&str>) -> Result<Package, Failure> {
    Package::from_path(path, name).map_err(|error| match error {
        DirectoryError::Refused(refusals) => refused(path, &refusals),
        error @ DirectoryError::Io { .. } => Failure::new(FailureKind::Local, error.to_string())
            .next("give the folder of an extension; `splinter ext new NAME` writes one; a finished module needs functions.toml beside it"),
    })
}

fn refused(path: &Path, refusals: &[Refusal]) -> Failure {
    let listing = builder::refusal::listing(refusals);
    Failure::new(FailureKind::Extension, format!("{} is refused:\n{listing}", path.display()))
        .known_as(Status::SourceRefused)
        .next("change what each line reports, then check again; docs/extensions.md lists the rules")
}

#[cfg(test)]
mod tests {
    use super::version_named;

    #[test]
    fn a_function_of_one_version_is_named_in_either_way_and_of_two_in_none() {
        assert_eq!(version_named("hello.greet", None).unwrap(), "hello.greet");
        assert_eq!(version_named("hello@1.greet", None).unwrap(), "hello@1.greet");
        assert_eq!(version_named("my.hello.greet", Some(2)).unwrap(), "my.hello@2.greet");
        assert_eq!(version_named("hello@2.greet", Some(2)).unwrap(), "hello@2.greet");
        let refused = version_named("hello@1.greet", Some(2)).unwrap_err().to_string();
        assert!(
            refused.contains("`hello@1` names version 1") && refused.contains("--version names 2"),
            "{refused}"
        );
    }
}
