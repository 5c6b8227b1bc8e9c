//! Gets that do not wait, at the two servers between which their keys are on the move: each side by itself.

#[path = "support/one_table.rs"]
mod one_table;

use std::sync::Arc;

use db::limits::PROGRESS_EVERY_US;
use db::tablet::{Moving, Parts, PartsChange};
use one_table::{OneTable, TABLE};
use store::{Quota, Table, TableOptions};
use wire::reply::{self, Arrived, Left, StaleRead};
use wire::{Condition, Request, Status};

const MIGRATION: u32 = 5;
const ALL: (u64, u64) = (0, u64::MAX);
/// What the source may spend in these tests.
const BUDGET_BYTES: u64 = 1_000;

/// What is known of a key, or the migration that has not brought it.
type Known = Result<Option<Vec<u8>>, u32>;

/// A worker of one side.
struct Side {
    table: OneTable,
    part: Arc<Table>,
}

impl Side {
    fn new() -> Self {
        let quota = Arc::new(Quota::new(1, u64::MAX));
        let mut made = None;
        let table = OneTable::new(|store| {
            let part = store.table_with(1, TableOptions::default(), &quota);
            Parts::whole(Arc::clone(made.insert(part)))
        });
        Self { table, part: made.expect("the table has one part") }
    }

    /// The answer; `None` where it has to wait.
    fn ask(&mut self, request: &Request<'_>) -> Option<(Status, Vec<u8>)> {
        self.table.ask(request)
    }

    fn get_now(&mut self, key: &[u8]) -> (Status, Vec<u8>) {
        self.ask(&Request::GetNow { table: TABLE, key }).expect("it never waits")
    }

    /// That, and the ranges that have arrived.
    fn known(&mut self, key: &[u8]) -> (Known, Vec<(u64, u64)>) {
        let (status, body) = self.get_now(key);
        let (arrived, rest) = Arrived::split(&body).expect("it comes first");
        let known = match status {
            Status::Ok => Ok(Some(reply::Object::decode(rest).expect("an object").value.to_vec())),
            Status::NotFound => Ok(None),
            Status::NotArrived => Err(u32::from_le_bytes(rest.try_into().expect("a number"))),
            other => panic!("{other:?}"),
        };
        (known, arrived.ranges().collect())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        let put = Request::Put { table: TABLE, key, value, condition: Condition::Always };
        assert_eq!(self.ask(&put).expect("an answer").0, Status::Ok);
    }

    fn alter(&mut self, change: &PartsChange) {
        self.table.set_parts(|parts| parts.altered(change).expect("of what is held"));
    }

    /// The side becomes that of a migration.
    fn moves(&mut self, leave: bool) -> Arc<Moving> {
        let pieces = vec![(ALL, Arc::clone(&self.part))];
        let moving = Arc::new(Moving::new(MIGRATION, pieces, BUDGET_BYTES));
        let leave = if leave { vec![ALL] } else { Vec::new() };
        self.alter(&PartsChange { leave, moving: vec![Arc::clone(&moving)], ..PartsChange::default() });
        moving
    }
}

#[test]
fn the_source_tells_what_there_was_to_who_asks_both_and_to_nobody_else() {
    let mut source = Side::new();
    source.put(b"there", b"value");
    assert_eq!(source.known(b"there"), (Ok(Some(b"value".to_vec())), vec![]), "while it owns it");
    let moving = source.moves(true);
    let (status, body) = source.get_now(b"there");
    assert_eq!(status, Status::Frozen);
    let StaleRead { migration, left: Left::Object(object) } = StaleRead::decode(&body).expect("as it left")
    else {
        panic!("it was there")
    };
    assert_eq!((migration, object.value, object.ttl_ms), (MIGRATION, &b"value"[..], None));
    let (status, body) = source.get_now(b"absent");
    let absent = StaleRead { migration: MIGRATION, left: Left::Absent };
    assert_eq!((status, StaleRead::decode(&body)), (Status::Frozen, Ok(absent)));
    let get = Request::Get { table: TABLE, key: b"there" };
    assert_eq!(source.ask(&get), Some((Status::NotOwned, vec![])));
    let put = Request::Put { table: TABLE, key: b"there", value: b"", condition: Condition::Always };
    assert_eq!(source.ask(&put).expect("an answer").0, Status::NotOwned);
    // It is closed before its objects go.
    moving.close();
    assert_eq!(source.get_now(b"there"), (Status::NotOwned, vec![]));
}

#[test]
fn the_source_spends_no_more_than_it_may() {
    let mut source = Side::new();
    source.put(b"key", &[7; 200]);
    let moving = source.moves(true);
    let mut told = 0;
    let (status, body) = loop {
        let (status, body) = source.get_now(b"key");
        if body.len() < 200 {
            break (status, body);
        }
        told += 1;
    };
    let untold = StaleRead { migration: MIGRATION, left: Left::Untold };
    assert_eq!((status, StaleRead::decode(&body)), (Status::Frozen, Ok(untold)));
    assert_eq!(moving.spent().0, told);
    assert!(told > 2 && moving.spent().1 <= BUDGET_BYTES, "{told} {moving:?}");
}

#[test]
fn the_target_tells_what_is_known_and_never_waits() {
    let mut target = Side::new();
    target.part.expect_arrivals(2, 100);
    let key =
        |at: u64| (0_u64..).map(u64::to_le_bytes).find(|key| store::hash(key) >> 62 == at).expect("some");
    let get = |key| Request::Get { table: TABLE, key };
    // Nobody may ask anybody else in another mode.
    assert_eq!(target.ask(&Request::GetNow { table: TABLE, key: &key(0) }), None);
    target.moves(false);
    assert_eq!(target.known(&key(0)), (Err(MIGRATION), vec![]));
    assert_eq!(target.ask(&get(&key(0))), None);
    target.put(&key(0), b"written");
    assert_eq!(target.known(&key(0)).0, Ok(Some(b"written".to_vec())));
    let delete = Request::Delete { table: TABLE, key: &key(0), condition: Condition::Always };
    assert_eq!(target.ask(&delete).expect("an answer").0, Status::Ok);
    assert_eq!(target.known(&key(0)).0, Ok(None));
    let half = (1 << 63) - 1;
    target.part.arrived(0, half);
    assert_eq!(target.known(&key(1)), (Ok(None), vec![]), "it was told a moment ago");
    target.table.now_us += PROGRESS_EVERY_US;
    assert_eq!(target.known(&key(1)), (Ok(None), vec![(0, half)]));
    target.table.now_us += PROGRESS_EVERY_US;
    assert_eq!(target.known(&key(2)), (Err(MIGRATION), vec![]), "it is no news");
}

#[test]
fn what_reads_miss_again_is_pulled_ahead() {
    let mut target = Side::new();
    target.part.expect_arrivals(8, 100);
    target.moves(false);
    let hot = store::hash(b"hot");
    let mut wanted = Vec::new();
    for key in [&b"hot"[..], b"cold", b"hot", b"hot"] {
        let _ = target.known(key);
    }
    target.part.take_wanted(9, &mut wanted);
    assert_eq!(wanted, [hot]);
}
