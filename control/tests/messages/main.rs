//! Administration means the same on both sides, also if they have different versions; no bytes make a decoder panic.
//!
//! Random tests print their seed and take it from `SPLINTER_SEED`; `SPLINTER_FULL=1` runs millions of inputs.

mod samples;

use std::fmt::Debug;
use std::iter;

use control::{
    AdminRequest, AuditEntry, ClusterStatus, DeserializeOwned, Durability, ExtensionDescription,
    ExtensionEntry, ExtensionResolved, GrantEntry, LimitChange, LogLines, MigrationProgress, PackageFile,
    Placement, Right, ServerEntry, Subject, TableEntry, TableOptions, TenantEntry, TenantLimitEntry, Traces,
    VersionEntry,
};
use fastrand::Rng;
use serde::Serialize;
use wire::Status;
use wire::limits::{LIMIT_CHANGES_MAX, PACKAGE_FILES_MAX};

use self::samples::{Message, requests, seen};

const GOLDEN: &str = include_str!("golden.txt");

fn rng(test: &str) -> Rng {
    let seed = match std::env::var("SPLINTER_SEED") {
        Ok(text) => text.parse().expect("SPLINTER_SEED is a decimal number"),
        Err(_) => fastrand::u64(..),
    };
    println!("{test}: SPLINTER_SEED={seed}");
    Rng::with_seed(seed)
}

/// Other versions understand these messages and are understood. A line of the file is a kind of message and the bytes of
/// one; lines are added and never changed: a message that has got a field has its old line and a new one.
#[test]
fn every_message_has_its_bytes_and_earlier_ones_are_understood() {
    let hex = |body: &[u8]| body.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let bytes = |digits: &str| -> Vec<u8> {
        let pairs = digits.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).expect("digits"));
        pairs.map(|pair| u8::from_str_radix(pair, 16).expect("digits")).collect()
    };
    let messages = seen().0;
    let golden: Vec<(&str, &str)> = GOLDEN.lines().filter_map(|line| line.split_once(' ')).collect();
    let mut missing = 0;
    for Message { kind, text, body, .. } in &messages {
        if !golden.contains(&(kind, &hex(body))) {
            println!("not in tests/messages/golden.txt, {text}:\n{kind} {}", hex(body));
            missing += 1;
        }
    }
    assert_eq!(missing, 0, "messages have other bytes than before");
    for (kind, digits) in golden {
        let one = messages.iter().find(|message| message.kind == kind).expect("a kind of message");
        assert!(
            (one.is_one)(&bytes(digits)),
            "an earlier version's message is not understood: {kind} {digits}"
        );
    }
}

#[test]
fn every_request_stands_in_the_documents() {
    let formats = include_str!("../../../docs/formats.md");
    for Message { text, body, .. } in seen().0.iter().take(requests().len()) {
        // A text, or a map from it: the name is behind one or two bytes.
        let name: String = body.iter().map(|byte| char::from(*byte)).collect();
        let name =
            name.split(|one: char| !one.is_ascii_lowercase() && one != '-').find(|name| name.len() > 3);
        let row = format!("| `{}` |", name.expect("a name"));
        assert!(formats.lines().any(|line| line.starts_with(&row)), "{row} for {text}");
    }
}

/// A field that the receiver does not know is skipped; options that the sender does not know have their defaults.
#[test]
fn two_versions_understand_each_other() {
    #[derive(Serialize)]
    struct NewerEntry {
        shape: Vec<&'static str>,
        version: u32,
        installed_ms: u64,
        size: Option<u64>,
    }
    let newer = NewerEntry { shape: vec!["a"; 3], version: 7, installed_ms: 8, size: None };
    let entry = control::decode::<VersionEntry>(&control::encode(&newer));
    assert_eq!(entry, Ok(VersionEntry { version: 7, installed_ms: 8 }));

    #[derive(Serialize)]
    struct OlderOptions {
        ordered: bool,
    }
    let options = control::decode::<TableOptions>(&control::encode(&OlderOptions { ordered: true }));
    assert_eq!(options, Ok(TableOptions { ordered: true, ..TableOptions::default() }));

    #[derive(Serialize)]
    #[serde(rename_all = "kebab-case")]
    enum NewerRequest {
        TenantFreeze { name: &'static str },
        TenantList,
    }
    let freeze = control::encode(&NewerRequest::TenantFreeze { name: "acme" });
    assert_eq!(AdminRequest::decode(&freeze), Err(Status::UnknownOpcode));
    assert_eq!(
        AdminRequest::decode(&control::encode(&NewerRequest::TenantList)),
        Ok(AdminRequest::TenantList)
    );
    assert_eq!(control::decode::<()>(&[]), Ok(()), "an empty body is a reply that only succeeds");
}

#[test]
fn names_that_may_not_be_used_are_refused_at_the_edge() {
    let long = "n".repeat(10_240);
    for name in ["", "../x", "a/b", &long] {
        for request in [
            AdminRequest::TableCreate { name, options: TableOptions::default() },
            AdminRequest::TableDrop { name },
            AdminRequest::TableAlter { name, durability: Durability::Written },
            AdminRequest::TenantLimits { name: Some(name) },
            AdminRequest::Statistics { tenant: Some(name) },
            AdminRequest::GrantCreate { name: "t", to: name, right: Right::Read },
            AdminRequest::ExtensionInstall { name, files: Vec::new(), placement: Placement::Current },
            AdminRequest::TenantLimitsSet { name, changes: Vec::new(), force: false },
        ] {
            let body = request.encode().expect("it is small");
            assert_eq!(AdminRequest::decode(&body), Err(Status::NameInvalid), "{request:?}");
        }
    }
}

#[test]
fn packages_that_climb_repeat_or_swell_are_refused() {
    let file = |path| PackageFile { path, bytes: b"" };
    let install = |files| AdminRequest::ExtensionInstall { name: "x", files, placement: Placement::Current };
    let refusal = |files| AdminRequest::decode(&install(files).encode().expect("it is small")).err();
    assert_eq!(refusal(vec![file("src/lib.rs"), file("../../x")]), Some(Status::NameInvalid));
    assert_eq!(refusal(vec![file("lib.rs"), file("lib.rs")]), Some(Status::NameInvalid));
    let many = install(vec![file("a"); PACKAGE_FILES_MAX + 1]);
    assert_eq!(many.encode(), Err(Status::LimitExceeded));
    assert_eq!(AdminRequest::decode(&control::encode(&many)), Err(Status::LimitExceeded));
    let huge = vec![0; 17 << 20];
    let huge = install(vec![PackageFile { path: "a", bytes: &huge }]);
    assert_eq!(huge.encode(), Err(Status::LimitExceeded));
}

#[test]
fn changes_of_limits_that_repeat_or_swell_are_refused() {
    let change = |limit| LimitChange { limit, value: Some(7) };
    let set = |changes| AdminRequest::TenantLimitsSet { name: "acme", changes, force: false };
    for changes in [vec![change("weight"), change("weight")], vec![change("")]] {
        let body = set(changes).encode().expect("it is small");
        assert_eq!(AdminRequest::decode(&body), Err(Status::NameInvalid));
    }
    let many = set(vec![change("weight"); LIMIT_CHANGES_MAX + 1]);
    assert_eq!(many.encode(), Err(Status::LimitExceeded));
    assert_eq!(AdminRequest::decode(&control::encode(&many)), Err(Status::LimitExceeded));
}

#[test]
fn a_canary_gets_a_part_and_never_all_or_nothing() {
    for percent in [0, 100, 255] {
        let placement = Placement::Canary(percent);
        let install = AdminRequest::ExtensionInstall { name: "x", files: Vec::new(), placement };
        let body = install.encode().expect("it is small");
        assert_eq!(AdminRequest::decode(&body), Err(Status::Malformed), "{percent}");
    }
}

#[test]
fn only_what_may_be_anothers_has_a_qualified_name() {
    let name = "acme/users";
    for request in [
        AdminRequest::TableOpen { name },
        AdminRequest::ExtensionResolve { name },
        AdminRequest::ExtensionLogs { name, level: 0, after: 0, count: 0 },
    ] {
        let body = request.encode().expect("it is small");
        assert!(AdminRequest::decode(&body).is_ok(), "{request:?}");
    }
    for request in [
        AdminRequest::TableDrop { name },
        AdminRequest::TableStat { name },
        AdminRequest::ExtensionRemove { name, version: 0 },
        AdminRequest::GrantCreate { name, to: "acme", right: Right::Read },
        AdminRequest::GrantRevoke { subject: Subject::Table, name, to: "acme" },
    ] {
        let body = request.encode().expect("it is small");
        let decoded = AdminRequest::decode(&body);
        assert_eq!(decoded, Err(Status::NameInvalid), "{request:?}");
    }
}

/// Decodes a body as everything; returns whether anything took it.
fn is_taken(body: &[u8]) -> bool {
    fn same<T: Serialize + DeserializeOwned + PartialEq + Debug>(body: &[u8]) -> bool {
        let Ok(value) = control::decode::<T>(body) else { return false };
        assert_eq!(control::decode::<T>(&control::encode(&value)), Ok(value));
        true
    }
    let request = AdminRequest::decode(body);
    if let Ok(request) = &request {
        assert_eq!(AdminRequest::decode(&request.encode().expect("it was one")).as_ref(), Ok(request));
    }
    request.is_ok()
        | same::<Vec<TenantEntry>>(body)
        | same::<Vec<TenantLimitEntry>>(body)
        | same::<Vec<TableEntry>>(body)
        | same::<Vec<ExtensionEntry>>(body)
        | same::<ExtensionDescription>(body)
        | same::<ExtensionResolved>(body)
        | same::<LogLines>(body)
        | same::<Traces>(body)
        | same::<Vec<GrantEntry>>(body)
        | same::<Vec<ServerEntry>>(body)
        | same::<Vec<MigrationProgress>>(body)
        | same::<ClusterStatus>(body)
        | same::<Vec<AuditEntry>>(body)
}

#[test]
fn damaged_messages_never_panic_a_decoder() {
    let mut rng = rng("damaged_messages_never_panic_a_decoder");
    let full = std::env::var_os("SPLINTER_FULL").is_some_and(|value| value == "1");
    let (seen, mut taken) = (seen().0, 0);
    for _ in 0..if full { 1_000_000 } else { 10_000 } {
        let mut body = rng.choice(&seen).expect("there are some").body.clone();
        for _ in 0..rng.usize(..4) {
            let at = rng.usize(..body.len().max(1));
            match rng.u8(..4) {
                0 => body.truncate(at),
                1 => body.insert(at, rng.u8(..)),
                2 => body.extend(iter::repeat_with(|| rng.u8(..)).take(at)),
                _ => body.iter_mut().skip(at).take(1).for_each(|byte| *byte = rng.u8(..)),
            }
        }
        taken += usize::from(is_taken(&body));
    }
    assert!(taken > 1_000, "the damage leaves something to decode: {taken}");
}

/// Lists that claim to be long reserve no memory for it, and nests of lists do not use up the stack.
#[test]
fn lists_that_lie_about_their_length_or_nest_are_refused() {
    let long = [0xdd, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(control::decode::<Vec<TenantEntry>>(&long), Err(Status::Malformed));
    assert_eq!(control::decode::<ExtensionDescription>(&vec![0x91; 1 << 20]), Err(Status::Malformed));
    let name = [&[0x81, 0xab][..], b"tenant-list", &vec![0x91; 1 << 20]].concat();
    assert!(AdminRequest::decode(&name).is_err());
}
