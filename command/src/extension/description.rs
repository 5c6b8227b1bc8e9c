//! `splinter ext describe`: functions and their arguments, limits, and versions with their statistics.

use super::super::failure::Failure;
use super::super::limits;
use super::super::output::{Answer, moment, table_of, thousands};
use super::versions;
use builder::arguments_of;
use client::{Client, FunctionEntry, FunctionMode, Measured, Statistic, VersionDescription, VersionState};
use serde_json::{Map, Value, json};

/// Describes an extension.
pub fn describe(client: &mut Client, name: &str) -> Result<Answer, Failure> {
    let found = client.extension_describe(name)?;
    let mut text = String::new();
    for function in &found.functions {
        let (mode, doc) = (mode_of(function), first_line(&function.doc));
        text.push_str(&format!("{mode:<5}  {:<24} {doc}\n", function.name));
        if let Some(arguments) = arguments_of(&function.doc) {
            text.push_str(&format!("{:32}arguments: {arguments}\n", ""));
        }
    }
    if found.versions.is_empty() {
        text.push_str(&format!("\nversion {}; only its owner sees its statistics\n", found.state.current));
    } else {
        text.push_str(&format!("\n{}", versions(&found.versions, &found.state)));
    }
    for version in &found.versions {
        if let Some(errors) = errors_of(&version.measured) {
            text.push_str(&format!("version {}: {errors}\n", version.version));
        }
    }
    let shown = |limit: &Statistic| format!("{} {}", limit.name, limits::text_of(&limit.name, limit.value));
    let shown: Vec<String> = found.limits.iter().map(shown).collect();
    text.push_str(&format!("\nlimits of an invocation: {}\n", shown.join(", ")));
    let functions: Vec<Value> = found.functions.iter().map(function_value).collect();
    let json = json!({
        "extension": found.name, "id": found.extension, "current": found.state.current,
        "canary": versions::canary_value(&found.state),
        "pinned": found.state.pinned, "functions": functions, "limits": limits_of(&found.limits),
        "versions": found.versions.iter().map(version_value).collect::<Vec<_>>(),
    });
    Ok(Answer::new(text, json))
}

fn versions(versions: &[VersionDescription], state: &VersionState) -> String {
    let heads =
        ["version", "state", "installed", "artefact", "calls", "errors", "cpu ms", "p50 ns", "p99 ns"];
    let mut rows = Vec::new();
    for found in versions {
        let measured = &found.measured;
        let is = match found.version {
            version if version == state.current && state.pinned => "current, pinned".to_owned(),
            version if version == state.current => "current".to_owned(),
            version if version == state.canary => format!("canary {} %", state.canary_percent),
            _ => "kept".to_owned(),
        };
        let time = |ns: u64| if measured.timed == 0 { "-".to_owned() } else { thousands(ns) };
        rows.push(vec![
            found.version.to_string(),
            is,
            moment(found.installed_ms),
            thousands(found.artefact_bytes),
            thousands(calls_of(measured)),
            thousands(calls_of(measured) - count_of(measured, "ok")),
            thousands(measured.cpu_ns / 1_000_000),
            time(measured.ns_p50),
            time(measured.ns_p99),
        ]);
    }
    table_of(&heads, rows)
}

fn calls_of(measured: &Measured) -> u64 {
    measured.ends.iter().map(|end| end.value).sum()
}

fn count_of(measured: &Measured, name: &str) -> u64 {
    measured.ends.iter().find(|end| end.name == name).map_or(0, |end| end.value)
}

/// Formats the errors of a version by kind; `None` if there were none.
fn errors_of(measured: &Measured) -> Option<String> {
    let errors = measured.ends.iter().filter(|end| end.name != "ok");
    let errors: Vec<_> = errors.map(|end| format!("{} {}", thousands(end.value), end.name)).collect();
    (!errors.is_empty()).then(|| errors.join(", "))
}

fn mode_of(function: &FunctionEntry) -> &'static str {
    if function.mode == FunctionMode::Read { "read" } else { "write" }
}

fn first_line(doc: &str) -> &str {
    doc.lines().next().unwrap_or("").trim()
}

fn function_value(function: &FunctionEntry) -> Value {
    json!({
        "function": function.name, "hash": function.hash, "mode": mode_of(function),
        "doc": first_line(&function.doc), "arguments": arguments_of(&function.doc),
    })
}

fn version_value(found: &VersionDescription) -> Value {
    let measured = &found.measured;
    json!({
        "version": found.version, "content_hash": found.content_hash, "artefact_bytes": found.artefact_bytes,
        "source_bytes": found.source_bytes, "installed_ms": found.installed_ms, "compile_ms": found.compile_ms,
        "calls": calls_of(measured), "ends": named(&measured.ends), "cpu_ns": measured.cpu_ns,
        "timed": measured.timed, "ns_p50": measured.ns_p50, "ns_p99": measured.ns_p99,
        "ns_p999": measured.ns_p999,
    })
}

fn limits_of(limits: &[Statistic]) -> Value {
    let one = |limit: &Statistic| (limit.name.clone(), Value::from(limits::number(limit.value)));
    Value::Object(limits.iter().map(one).collect::<Map<_, _>>())
}

fn named(statistics: &[Statistic]) -> Value {
    let one = |statistic: &Statistic| (statistic.name.clone(), Value::from(statistic.value));
    Value::Object(statistics.iter().map(one).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::errors_of;
    use client::{Measured, Statistic};

    #[test]
    fn errors_are_shown_by_kind() {
        let end = |name: &str, value| Statistic { name: name.into(), value };
        let ends = vec![end("ok", 9), end("panicked", 1_000), end("conflict", 2)];
        let mut measured = Measured { ends, cpu_ns: 0, timed: 0, ns_p50: 0, ns_p99: 0, ns_p999: 0 };
        assert_eq!(errors_of(&measured).as_deref(), Some("1,000 panicked, 2 conflict"));
        measured.ends.truncate(1);
        assert_eq!(errors_of(&measured), None);
    }
}
