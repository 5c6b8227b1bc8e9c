//! Tests that a transaction commits only if everything it read is unchanged.

use std::time::Duration;

use redb::Builder;
use redb::backends::InMemoryBackend;
use serde::{Deserialize, Serialize};

use super::{MetadataTransaction, WriteTurn};
use crate::records::{Committed, Embedded, KeySpan, RecordsError};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Number(u64);

fn records() -> Embedded {
    let opener = || Builder::new().create_with_backend(InMemoryBackend::new());
    Embedded::open_with(Box::new(opener), |version, _| Err(RecordsError::UnknownFormat(version)))
        .expect("memory")
}

/// Commits a change without conflict.
fn change(records: &Embedded, change: impl FnOnce(&mut MetadataTransaction<'_>)) {
    let mut transaction = MetadataTransaction::new(records);
    change(&mut transaction);
    assert!(matches!(transaction.commit(), Ok(Committed::At(_))));
}

/// Returns whether a transaction that runs `read` conflicts with a later one that runs `other` and commits first.
fn contradict(
    read: impl FnOnce(&mut MetadataTransaction<'_>),
    other: impl FnOnce(&mut MetadataTransaction<'_>),
) -> bool {
    let records = records();
    change(&records, |transaction| {
        for (key, number) in [("c/a/1", 1), ("c/a/2", 2), ("c/b/1", 3)] {
            transaction.put(key, &Number(number)).expect("it is encoded");
        }
    });
    let mut transaction = MetadataTransaction::new(&records);
    read(&mut transaction);
    change(&records, other);
    transaction.put("d/e/1", &Number(9)).expect("it is encoded");
    transaction.commit() == Ok(Committed::Conflict)
}

fn get(key: &'static str) -> impl FnOnce(&mut MetadataTransaction<'_>) {
    move |transaction| assert!(transaction.get::<Number>(key).is_ok())
}

fn all(prefix: &'static str) -> impl FnOnce(&mut MetadataTransaction<'_>) {
    move |transaction| assert!(transaction.all_bytes(prefix).is_ok())
}

fn first(prefix: &'static str) -> impl FnOnce(&mut MetadataTransaction<'_>) {
    move |transaction| assert!(transaction.first_before(KeySpan::prefix(prefix)).is_ok())
}

fn put(key: &'static str) -> impl FnOnce(&mut MetadataTransaction<'_>) {
    move |transaction| transaction.put(key, &Number(7)).expect("it is encoded")
}

fn delete(key: &'static str) -> impl FnOnce(&mut MetadataTransaction<'_>) {
    move |transaction| transaction.delete(key)
}

#[test]
fn what_was_read_is_the_same_or_the_commit_is_refused() {
    assert!(contradict(get("c/a/1"), put("c/a/1")));
    assert!(contradict(get("c/a/1"), delete("c/a/1")));
    assert!(contradict(get("c/a/none"), put("c/a/none")));
    assert!(!contradict(get("c/a/1"), put("c/a/2")));
    assert!(!contradict(get("c/a/none"), delete("c/a/1")));
}

#[test]
fn nothing_comes_into_or_goes_from_a_span_that_was_read() {
    assert!(contradict(all("c/a/"), put("c/a/3")));
    assert!(contradict(all("c/a/"), put("c/a/2")));
    assert!(contradict(all("c/a/"), delete("c/a/2")));
    assert!(contradict(all("c/a/"), |transaction| transaction.clear("c/a/")));
    assert!(contradict(all("c/none/"), put("c/none/1")));
    assert!(!contradict(all("c/a/"), put("c/b/2")));
    assert!(!contradict(all("c/a/"), delete("c/b/1")));
}

#[test]
fn the_first_of_a_span_is_the_first_and_the_others_are_nobodys_concern() {
    assert!(contradict(first("c/a/"), put("c/a/0")));
    assert!(contradict(first("c/a/"), delete("c/a/1")));
    assert!(!contradict(first("c/a/"), put("c/a/2")));
    assert!(contradict(first("c/none/"), put("c/none/1")));
}

#[test]
fn a_transaction_sees_what_it_has_written_and_cleared() {
    let records = records();
    change(&records, |transaction| {
        for key in ["c/a/1", "c/a/2", "c/b/1"] {
            transaction.put(key, &Number(1)).expect("it is encoded");
        }
    });
    let mut transaction = MetadataTransaction::new(&records);
    put("c/a/1")(&mut transaction);
    delete("c/a/2")(&mut transaction);
    put("c/a/3")(&mut transaction);
    let rows = transaction.all_bytes("c/a/").expect("records answer");
    assert_eq!(rows, [("c/a/1".to_owned(), b"7".to_vec()), ("c/a/3".to_owned(), b"7".to_vec())]);
    assert_eq!(transaction.get::<Number>("c/a/2"), Ok(None));
    transaction.clear("c/a/");
    assert_eq!(transaction.get::<Number>("c/a/1"), Ok(None));
    assert_eq!(transaction.all_bytes("c/"), Ok(vec![("c/b/1".to_owned(), b"1".to_vec())]));
    assert!(matches!(transaction.commit(), Ok(Committed::At(_))));
    let mut after = MetadataTransaction::new(&records);
    assert_eq!(after.all_bytes("c/"), Ok(vec![("c/b/1".to_owned(), b"1".to_vec())]));
}

#[test]
fn one_has_the_turn_and_who_waits_too_long_is_told() {
    let turn = WriteTurn::default();
    let mine = turn.take(Duration::ZERO).expect("free");
    assert!(turn.take(Duration::from_millis(1)).is_err());
    drop(mine);
    assert!(turn.take(Duration::ZERO).is_ok());
}
