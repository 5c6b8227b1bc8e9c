//! Guesses over the raw wire: at tables, tokens, extensions and versions of others, and at a password.

use std::time::Duration;

use client::{Request, Status, reply};
use tests::effort::{rng, rounds};
use tests::raw::{RawSession, RawStream, frame};
use wire::{Condition, Keys, OpenRequest, function_hash};

use super::stage::{KEPT, MARK, Stage, in_time, install_folder, refusal};

/// Ids of tables and extensions count up from small numbers, for all tenants together.
const IDS: u32 = 64;

fn raw(stage: &Stage) -> RawSession {
    let mallory = &stage.mallory;
    RawSession::open(stage.server.address(), &mallory.name, &mallory.secret).expect("mallory is let in")
}

#[test]
fn guessed_tables_are_unknown_whatever_is_asked_of_them() {
    let stage = Stage::new();
    let session = raw(&stage);
    let mut sequence = 0;
    for table in (0..IDS).chain([u32::MAX, u32::MAX - 1, 1 << 31]).filter(|table| *table != stage.table) {
        let (key, value, condition) = (KEPT, &b"taken over"[..], Condition::Always);
        for key in [key, &[0][..], &0_u64.to_le_bytes()] {
            let keys = [key];
            let requests = [
                Request::Get { table, key },
                Request::Put { table, key, value, condition },
                Request::Delete { table, key, condition },
                Request::Increment { table, key, delta: 1 },
                Request::MultiGet { table, keys: Keys::from_slices(&keys) },
                Request::PutFor { table, key, value, condition, ttl_ms: 1 },
                Request::IncrementFloat { table, key, delta_bits: 1 },
                Request::Enumerate { table, cursor: &[], keys_only: true, objects_max: 9, bytes_max: 900 },
                Request::Verify { table, cursor: &[] },
            ];
            for request in requests {
                sequence += 1;
                let answer = session.call(sequence, &request).unwrap();
                assert_eq!(answer.status, Status::UnknownTable, "{request:?}");
            }
        }
    }
    stage.ends_unharmed();
}

#[test]
fn an_extension_reaches_no_table_that_its_caller_guesses() {
    let mut stage = Stage::new();
    for table in (0..IDS).chain([u32::MAX]).filter(|table| *table != stage.table) {
        for function in ["misbehave.peek", "misbehave.panics", "misbehave.hold"] {
            let (status, _) = refusal(stage.client.invoke(function, table, KEPT, &1_u32.to_le_bytes()));
            assert_eq!(status, Status::UnknownTable, "{function} in table {table}");
        }
    }
    stage.ends_unharmed();
}

#[test]
fn guessed_tokens_open_no_session() {
    let stage = Stage::new();
    let session = raw(&stage);
    let (own, view) = (session.opened.token, session.opened.view);
    let mut random = rng();
    let near = (0..64).map(|bit| own ^ 1 << bit).chain((1..32).map(|step| own.wrapping_add(step)));
    let tokens: Vec<u64> = near.chain((0..rounds(2_000, 300_000)).map(|_| random.u64(..))).collect();
    let get = Request::Get { table: stage.table, key: KEPT };
    let mut refused = 0;
    for (sequence, token) in tokens.iter().filter(|token| **token != own).enumerate() {
        session.send(&frame((*token, view), 1, sequence as u64 + 1, &get)).unwrap();
        if sequence % 64 > 0 {
            continue;
        }
        while let Ok(answers) = session.receive(Duration::from_millis(1)) {
            assert!(answers.iter().all(|answer| answer.status == Status::BadToken), "{answers:?}");
            refused += answers.len();
        }
    }
    println!("{refused} of {} guesses were answered, with a refusal", tokens.len());
    for token in tokens.iter().take(20).filter(|token| **token != own) {
        let mut stream = RawStream::connect(stage.server.address()).unwrap();
        if let Ok((status, _)) = stream.open(&OpenRequest::Attach { token: *token }) {
            assert!(matches!(status, Status::BadToken | Status::Retry), "{status:?}");
        }
    }
    // A sequence that no guess had, whose refusals may come late.
    let answer = session.call(2 * tokens.len() as u64, &get).unwrap();
    assert_eq!(reply::Object::decode(&answer.body).unwrap().value, KEPT, "the own token still opens");
    stage.ends_unharmed();
}

#[test]
fn guessed_extensions_versions_and_functions_are_unknown() {
    let mut stage = Stage::new();
    let own = stage.client.resolve("misbehave.peek").unwrap();
    let session = raw(&stage);
    let mut sequence = 0;
    let mut ask = |extension: u32, version: u32, function: u32| {
        sequence += 1;
        let (table, key, arguments) = (stage.table, KEPT, &b""[..]);
        let request = Request::Invoke { extension, version, function, table, key, arguments };
        session.call(sequence, &request).unwrap().status
    };
    // The neighbours have functions of these names.
    let names = ["balance", "sum", "transfer", "checksum", "peek"].map(function_hash);
    for extension in (0..IDS).chain([u32::MAX]).filter(|id| *id != own.extension) {
        for version in [0, 1, 2, u32::MAX] {
            for function in names {
                let status = ask(extension, version, function);
                assert_eq!(status, Status::UnknownExtension, "{extension}@{version} {function:#x}");
            }
        }
    }
    for version in [2, 3, 1_000, u32::MAX] {
        assert_eq!(ask(own.extension, version, own.function), Status::UnknownExtension, "version {version}");
    }
    for function in [0, 1, own.function ^ 1, u32::MAX, function_hash("transfer"), function_hash("mark")] {
        assert_eq!(ask(own.extension, 0, function), Status::UnknownFunction, "function {function:#x}");
    }
    assert_eq!(ask(own.extension, 0, own.function), Status::Ok);
    assert_eq!(ask(own.extension, 1, own.function), Status::Ok);
    stage.ends_unharmed();
}

#[test]
fn a_password_is_verified_beside_the_data_and_guesses_are_wrong() {
    let mut stage = Stage::new();
    let vault = stage.server.tenant("vault");
    let mut client = stage.server.client(&vault);
    let users = client.table_create("users").unwrap();
    install_folder(&mut client, "auth");
    let order = [&0_u32.to_le_bytes()[..], b"0123456789abcdef", b"correct horse"].concat();
    let mut call = |function: &str, user: &[u8], words: &[u8]| {
        in_time(|| client.invoke(&format!("auth.{function}"), users, user, words)).expect("an answer")
    };
    call("set_password", b"ann", &order);
    assert_eq!(call("verify", b"ann", b"correct horse"), [1]);
    for guess in ["correct horsf", "correct hors", "password", "123456"] {
        assert_eq!(call("verify", b"ann", guess.as_bytes()), [0], "{guess}");
    }
    assert_eq!(call("verify", b"nobody", b"correct horse"), [0]);
    // Who has no part in it can neither ask nor look.
    let (status, _) = refusal(stage.client.invoke("auth.verify", users, b"ann", b"correct horse"));
    assert_eq!(status, Status::UnknownExtension);
    assert_eq!(refusal(stage.client.get(users, b"ann")).0, Status::UnknownTable);
    assert_eq!(refusal(stage.client.put(users, MARK, b"left behind")).0, Status::UnknownTable);
    stage.ends_unharmed();
}
