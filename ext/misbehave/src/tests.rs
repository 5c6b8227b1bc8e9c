//! The misdeeds that end by themselves; what becomes of the others is for a server to show.

extern crate std;

use std::string::ToString;

use sandstorm::Error;
use sandstorm::Level;
use sandstorm::Table;
use sandstorm::testing::MemoryDb;

fn stage() -> (MemoryDb, Table) {
    let db = MemoryDb::new();
    let table = db.table("t");
    db.put(table, b"k", b"before");
    (db, table)
}

#[test]
fn a_write_before_an_error_is_not_seen() {
    let (db, table) = stage();
    assert_eq!(db.call(super::write_then_error, table, b"k", b"after"), Err(Error::Application(42)));
    assert_eq!(db.call(super::reply_flood, table, b"k", b"after"), Err(Error::ReplyTooLarge));
    assert_eq!(db.get(table, b"k").unwrap(), b"before");
}

#[test]
fn a_function_that_reads_does_not_write() {
    let (db, table) = stage();
    assert_eq!(db.call_read(super::sneak, table, b"k", b"after"), Err(Error::ReadOnly));
    assert_eq!(db.get(table, b"k").unwrap(), b"before");
}

#[test]
fn what_is_forgotten_is_not_done() {
    let (db, table) = stage();
    assert_eq!(db.call(super::forget_future, table, b"k", b"after").unwrap(), b"forgotten");
    assert_eq!(db.get(table, b"k").unwrap(), b"before");
}

#[test]
fn a_record_is_held_over_yields() {
    let (db, table) = stage();
    assert_eq!(db.call_read(super::hold, table, b"k", &100u32.to_le_bytes()).unwrap(), b"before");
    assert_eq!(db.call_read(super::hold, table, b"nothing", &1u32.to_le_bytes()), Err(Error::NotFound));
    assert_eq!(db.call_read(super::peek, table, b"k", b"").unwrap(), b"before");
}

#[test]
fn panics_say_why() {
    let text = |result: std::thread::Result<Result<std::vec::Vec<u8>, Error>>| {
        let payload = result.expect_err("it panics");
        let literal = payload.downcast_ref::<&str>().map(ToString::to_string);
        literal.or_else(|| payload.downcast_ref::<std::string::String>().cloned()).unwrap_or_default()
    };
    let (db, table) = stage();
    let caught = |work: &dyn Fn() -> Result<std::vec::Vec<u8>, Error>| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(work))
    };
    assert_eq!(text(caught(&|| db.call(super::panics, table, b"k", b""))), "a key of 1 bytes");
    assert_eq!(text(caught(&|| db.call(super::panic_in_drop, table, b"k", b""))), "from a destructor");
    assert!(text(caught(&|| db.call(super::index_beyond, table, b"k", b""))).contains("out of bounds"));
    assert!(text(caught(&|| db.call(super::divide_by_zero, table, b"k", b""))).contains("divide by zero"));
    assert_eq!(db.get(table, b"k").unwrap(), b"before");
    assert!(db.take_log().iter().all(|(level, _)| *level != Level::Error));
}
