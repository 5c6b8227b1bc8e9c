//! `splinter ext describe`: functions and their arguments, limits, the form in which invocations run, and versions with
//! their statistics.

use super::super::failure::Failure;
use super::super::limits;
use super::super::output::{Answer, moment, table_of, thousands};
use super::versions;
use builder::arguments_of;
use client::{
    Client, ExtensionDescription, FunctionEntry, FunctionMode, Measured, Statistic, VersionDescription,
    VersionState,
};
use serde_json::{Map, Value, json};

/// What is said of a finished module.
pub(super) const MODULE_ONLY: &str = "module only: the source was not checked";

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
        if version.source_checked == Some(false) {
            text.push_str(&format!("version {}: {MODULE_ONLY}\n", version.version));
        }
        if let Some(errors) = errors_of(&version.measured) {
            text.push_str(&format!("version {}: {errors}\n", version.version));
        }
    }
    let shown = |limit: &Statistic| format!("{} {}", limit.name, limits::text_of(&limit.name, limit.value));
    let shown: Vec<String> = found.limits.iter().map(shown).collect();
    text.push_str(&format!("\nlimits of an invocation: {}\n", shown.join(", ")));
    if let Some(form) = &found.sandbox {
        text.push_str(&format!("your invocations run as {form}{}\n", promise_of(form)));
    }
    for (version, why) in modules_missing(&found) {
        text.push_str(&format!("version {version}: {}\n", why.trim_end()));
    }
    let functions: Vec<Value> = found.functions.iter().map(function_value).collect();
    let json = json!({
        "extension": found.name, "id": found.extension, "current": found.state.current,
        "canary": versions::canary_value(&found.state),
        "pinned": found.state.pinned, "functions": functions, "limits": limits_of(&found.limits),
        "versions": found.versions.iter().map(version_value).collect::<Vec<_>>(),
        "sandbox": found.sandbox, "wasm": module_value(found.no_module.as_deref()),
    });
    Ok(Answer::new(text, json))
}

/// Returns what a form promises, in few words; nothing for a form of a newer server.
fn promise_of(form: &str) -> &'static str {
    match form {
        "native" => {
            ": machine code in the server's process; only the checked language keeps it from what is not yours"
        }
        "wasm" => ": a WebAssembly module, which reaches only its own memory, whatever its code does; slower",
        _ => "",
    }
}

/// Returns the versions without a module, each with the reason; of a granted extension at most the current one.
fn modules_missing(found: &ExtensionDescription) -> Vec<(u32, &str)> {
    let of_versions = found.versions.iter().map(|version| (version.version, version.no_module.as_deref()));
    let of_current = found.versions.is_empty().then_some((found.state.current, found.no_module.as_deref()));
    let all = of_versions.chain(of_current);
    all.filter_map(|(version, why)| Some((version, why.filter(|why| !why.is_empty())?))).collect()
}

/// Returns whether there is a module, and if not why; `null` if the server does not say.
pub(super) fn module_value(no_module: Option<&str>) -> Value {
    match no_module {
        None => Value::Null,
        Some("") => json!({ "available": true }),
        Some(why) => json!({ "available": false, "reason": why }),
    }
}

fn versions(versions: &[VersionDescription], state: &VersionState) -> String {
    let heads = [
        "version",
        "state",
        "installed",
        "artefact",
        "wasm",
        "calls",
        "errors",
        "pushed back",
        "cpu ms",
        "p50 ns",
        "p99 ns",
    ];
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
            found
                .no_module
                .as_deref()
                .map_or("-", |why| if why.is_empty() { "yes" } else { "no" })
                .to_owned(),
            thousands(calls_of(measured)),
            thousands(calls_of(measured) - count_of(measured, "ok")),
            thousands(measured.pushed_back),
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
        "source_bytes": found.source_bytes, "source_checked": found.source_checked,
        "installed_ms": found.installed_ms, "compile_ms": found.compile_ms,
        "calls": calls_of(measured), "ends": named(&measured.ends), "pushed_back": measured.pushed_back, "cpu_ns": measured.cpu_ns,
        "timed": measured.timed, "ns_p50": measured.ns_p50, "ns_p99": measured.ns_p99,
        "ns_p999": measured.ns_p999, "wasm": module_value(found.no_module.as_deref()),
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
    use super::{errors_of, module_value, modules_missing};
    use client::{ExtensionDescription, Measured, Statistic, VersionState};
    use serde_json::json;

    #[test]
    fn errors_are_shown_by_kind() {
        let end = |name: &str, value| Statistic { name: name.into(), value };
        let ends = vec![end("ok", 9), end("panicked", 1_000), end("conflict", 2)];
        let mut measured =
            Measured { ends, pushed_back: 0, cpu_ns: 0, timed: 0, ns_p50: 0, ns_p99: 0, ns_p999: 0 };
        assert_eq!(errors_of(&measured).as_deref(), Some("1,000 panicked, 2 conflict"));
        measured.ends.truncate(1);
        assert_eq!(errors_of(&measured), None);
    }

    #[test]
    fn a_missing_module_is_shown_with_its_reason() {
        let mut found = ExtensionDescription {
            extension: 1,
            name: "ann/tao".into(),
            state: VersionState { current: 3, ..VersionState::default() },
            functions: Vec::new(),
            limits: Vec::new(),
            versions: Vec::new(),
            sandbox: None,
            no_module: Some("wasm unavailable: its owner sees why".into()),
        };
        assert_eq!(modules_missing(&found), [(3, "wasm unavailable: its owner sees why")]);
        found.no_module = Some(String::new());
        assert_eq!(modules_missing(&found), []);
        assert_eq!(module_value(None), json!(null), "of an earlier server");
        assert_eq!(module_value(Some("")), json!({ "available": true }));
        assert_eq!(module_value(Some("why")), json!({ "available": false, "reason": "why" }));
    }
}
