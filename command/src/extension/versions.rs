//! The versions of an extension: listing them, and choosing which ones serve invocations.

use super::super::failure::{Failure, FailureKind};
use super::super::output::{Answer, table_of};
use super::super::settings::Settings;
use client::{Client, VersionState};
use serde_json::{Value, json};

/// Lists extensions with their versions.
pub fn list(client: &mut Client) -> Result<Answer, Failure> {
    let heads = ["extension", "current", "canary", "pinned", "functions", "versions"];
    let mut rows = Vec::new();
    let mut values = Vec::new();
    for entry in client.extension_list()? {
        let versions: Vec<String> = entry.versions.iter().map(|kept| kept.version.to_string()).collect();
        let pinned = if entry.state.pinned { "yes" } else { "no" };
        rows.push(vec![
            entry.name.clone(),
            entry.state.current.to_string(),
            canary_of(&entry.state),
            pinned.to_owned(),
            entry.functions.to_string(),
            versions.join(" "),
        ]);
        let kept = |kept: &client::VersionEntry| json!({ "version": kept.version, "installed_ms": kept.installed_ms });
        let mut value = value_of(&entry.name, &entry.state);
        value["id"] = json!(entry.extension);
        value["functions"] = json!(entry.functions);
        value["versions"] = entry.versions.iter().map(kept).collect();
        values.push(value);
    }
    Ok(Answer::new(table_of(&heads, rows), json!(values)))
}

/// Makes an earlier version current, or ends the canary.
pub fn roll_back(client: &mut Client, name: &str, to: Option<u32>) -> Result<Answer, Failure> {
    one_version(name, "--to", to)?;
    let state = client.extension_roll_back(name, to)?;
    Ok(answer(name, &state))
}

/// Pins a version, or unpins the pinned one.
pub fn pin(client: &mut Client, name: &str, version: Option<u32>) -> Result<Answer, Failure> {
    one_version(name, "VERSION", version)?;
    let state = client.extension_pin(name, version)?;
    Ok(answer(name, &state))
}

/// Makes the canary current.
pub fn promote(client: &mut Client, name: &str) -> Result<Answer, Failure> {
    let state = client.extension_promote(name)?;
    Ok(answer(name, &state))
}

/// Removes `NAME`, or one version as `NAME@VERSION`.
pub fn remove(settings: &Settings, target: &str) -> Result<Answer, Failure> {
    let (name, version) = split(target)?;
    let mut client = settings.connect()?;
    match version {
        Some(version) => client.extension_remove_version(name, version)?,
        None => client.extension_remove(name)?,
    }
    Ok(Answer::new(format!("removed {target}"), json!({ "removed": target })))
}

/// Refuses `NAME@VERSION` together with another version.
fn one_version(name: &str, option: &str, version: Option<u32>) -> Result<(), Failure> {
    match (name.split_once('@'), version) {
        (Some((_, named)), Some(version)) => Err(two_versions(name, named, option, version)),
        _ => Ok(()),
    }
}

/// Returns the failure of a command line that names two versions.
pub fn two_versions(name: &str, named: &str, option: &str, version: u32) -> Failure {
    let what = format!("`{name}` names version {named}, and {option} names {version}");
    Failure::new(FailureKind::Usage, what).next("name one of them")
}

fn split(target: &str) -> Result<(&str, Option<u32>), Failure> {
    let Some((name, version)) = target.split_once('@') else { return Ok((target, None)) };
    match version.parse() {
        Ok(version @ 1..) => Ok((name, Some(version))),
        _ => Err(Failure::new(FailureKind::Local, format!("`{target}` does not name a version"))
            .next("write NAME@VERSION with a version that `splinter ext list` shows")),
    }
}

fn answer(name: &str, state: &VersionState) -> Answer {
    let mut text = format!("{name}@{} is current", state.current);
    if state.pinned {
        text.push_str(" and pinned");
    }
    if state.canary != 0 {
        text.push_str(&format!("; canary {}", canary_of(state)));
    }
    Answer::new(text, value_of(name, state))
}

fn canary_of(state: &VersionState) -> String {
    match state.canary {
        0 => "-".to_owned(),
        canary => format!("{canary} ({} %)", state.canary_percent),
    }
}

fn value_of(name: &str, state: &VersionState) -> Value {
    json!({
        "extension": name, "current": state.current, "canary": canary_value(state), "pinned": state.pinned,
    })
}

/// Returns the canary and its share of the invocations; null if there is none.
pub fn canary_value(state: &VersionState) -> Value {
    match state.canary {
        0 => Value::Null,
        version => json!({ "version": version, "percent": state.canary_percent }),
    }
}

#[cfg(test)]
mod tests {
    use super::{canary_value, one_version, split};
    use client::VersionState;

    #[test]
    fn there_is_one_form_of_a_canary_and_null_for_none() {
        let state = VersionState { current: 1, canary: 2, canary_percent: 10, pinned: false };
        assert_eq!(canary_value(&state).to_string(), r#"{"percent":10,"version":2}"#);
        assert!(canary_value(&VersionState { canary: 0, canary_percent: 0, ..state }).is_null());
    }

    #[test]
    fn a_version_is_named_once() {
        assert!(one_version("tao", "--to", Some(2)).is_ok() && one_version("tao@1", "--to", None).is_ok());
        let refused = one_version("tao@1", "--to", Some(2)).unwrap_err().to_string();
        assert!(refused.contains("`tao@1` names version 1, and --to names 2"), "{refused}");
    }

    #[test]
    fn one_version_or_all_are_removed() {
        assert_eq!(split("tao").unwrap(), ("tao", None));
        assert_eq!(split("tao@3").unwrap(), ("tao", Some(3)));
        for wrong in ["tao@", "tao@0", "tao@x", "tao@-1"] {
            assert!(split(wrong).unwrap_err().to_string().contains("NAME@VERSION"), "{wrong}");
        }
    }
}
