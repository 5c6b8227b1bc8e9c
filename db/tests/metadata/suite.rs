//! What holds of records, wherever they are kept.

use std::slice;
use std::time::Duration;

use cluster::moment::Moment;
use cluster::records::{
    Committed, Condition, Event, KeySpan, Query, RecordChange, Records, RecordsError, Revision, WatchEnd,
};

use super::patience::{PATIENCE, comes};
use super::place::{Place, pairs, write};

fn put(key: &str, value: &str) -> RecordChange {
    RecordChange::put(key, value)
}

fn value(records: &dyn Records, key: &str) -> Option<String> {
    pairs(records, Query::all(KeySpan::one(key))).pop().map(|(_, value)| value)
}

pub fn a_commit_happens_when_all_conditions_hold_and_else_not_at_all(place: &Place) {
    let (one, other) = (place.client(), place.client());
    let (one, other) = (one.as_ref(), other.as_ref());
    let first = write(one, &[put("a/1", "x"), put("a/2", "y")]);
    let second = write(other, &[put("a/2", "z"), RecordChange::Delete("a/none".to_owned())]);
    assert!(second > first);
    let absent = Condition::Absent("a/3".to_owned());
    let is = |key: &str, revision| Condition::Is(key.to_owned(), revision);
    let late = [absent.clone(), is("a/1", first), is("a/2", first)];
    assert_eq!(one.commit(&late, &[put("a/1", "lost"), put("a/3", "lost")]), Ok(Committed::Conflict));
    assert_eq!(value(other, "a/1").as_deref(), Some("x"));
    assert_eq!(value(other, "a/3"), None);
    let held = [absent.clone(), is("a/1", first), is("a/2", second)];
    let committed = one.commit(&held, &[put("a/3", "new"), RecordChange::Delete("a/1".to_owned())]);
    let Ok(Committed::At(third)) = committed else { panic!("{committed:?}") };
    assert!(third > second);
    assert_eq!((value(other, "a/1"), value(other, "a/3").as_deref()), (None, Some("new")));
    assert_eq!(other.commit(&[absent], &[put("a/3", "lost")]), Ok(Committed::Conflict));
    assert_eq!(other.commit(&[is("a/1", first)], &[put("a/1", "lost")]), Ok(Committed::Conflict));
    write(one, &[RecordChange::DeletePrefix("a/".to_owned()), put("b", "left")]);
    assert_eq!(pairs(other, Query::all(KeySpan::prefix("a/"))), []);
    assert_eq!(value(other, "b").as_deref(), Some("left"));
}

pub fn a_span_is_the_same_until_somebody_writes_in_it(place: &Place) {
    let (one, other) = (place.client(), place.client());
    let (one, other) = (one.as_ref(), other.as_ref());
    let nothing = Condition::NoneNewer(KeySpan::prefix("a/"), Revision(1));
    let Ok(Committed::At(first)) = one.commit(slice::from_ref(&nothing), &[put("a/1", "x")]) else {
        panic!("the span is empty");
    };
    assert_eq!(one.commit(&[nothing], &[put("a/2", "lost")]), Ok(Committed::Conflict));
    let beside = write(other, &[put("b/1", "beside")]);
    let span = Condition::NoneNewer(KeySpan::prefix("a/"), first);
    let Ok(Committed::At(second)) = one.commit(slice::from_ref(&span), &[put("a/2", "y")]) else {
        panic!("nobody wrote in it");
    };
    assert!(second > beside);
    assert_eq!(one.commit(&[span], &[put("a/3", "lost")]), Ok(Committed::Conflict));
    let mark = |revision| Condition::NoneNewer(KeySpan::one("b/1"), revision);
    assert_eq!(one.commit(&[mark(first)], &[put("c", "lost")]), Ok(Committed::Conflict));
    assert!(matches!(one.commit(&[mark(beside)], &[put("c", "kept")]), Ok(Committed::At(_))));
}

pub fn queries_are_answered_as_of_one_commit(place: &Place) {
    let (one, other) = (place.client(), place.client());
    write(one.as_ref(), &[put("a/1", "x"), put("a/2", "x")]);
    let (a, b) = (Query::all(KeySpan::one("a/1")), Query::all(KeySpan::prefix("a/")));
    let before = one.read(&[a.clone(), b.clone(), a.clone()], None).expect("records answer");
    assert_eq!(before.found.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 1]);
    let again = one.read(slice::from_ref(&b), Some(before.revision)).expect("nothing was committed");
    assert_eq!(again.found[0], before.found[1]);
    let after = write(other.as_ref(), &[put("a/1", "y"), put("a/3", "y")]);
    match one.read(&[a.clone(), b.clone()], Some(before.revision)) {
        Ok(earlier) => assert_eq!(earlier.found, before.found[..2]),
        Err(error) => assert_eq!(error, RecordsError::Overtaken),
    }
    let now = one.read(&[a, b], None).expect("records answer");
    assert_eq!((now.revision, now.found[0][0].revision, now.found[1].len()), (after, after, 3));
}

pub fn spans_are_read_from_either_end_in_pages(place: &Place) {
    let records = place.client();
    let records = records.as_ref();
    let key = |number: usize| format!("a/{number:05}");
    let most = 2_300;
    for chunk in (0..most).collect::<Vec<_>>().chunks(100) {
        write(records, &chunk.iter().map(|number| put(&key(*number), "x")).collect::<Vec<_>>());
    }
    write(records, &[put("b/1", "beside")]);
    let span = KeySpan::prefix("a/");
    let keys = |limit, from_last| -> Vec<String> {
        let query = Query { span: span.clone(), limit, from_last };
        pairs(records, query).into_iter().map(|(key, _)| key).collect()
    };
    let all: Vec<String> = (0..most).map(key).collect();
    assert_eq!(keys(usize::MAX, false), all);
    assert_eq!(keys(3, false), all[..3]);
    assert_eq!(keys(1_500, false), all[..1_500]);
    let reversed: Vec<String> = all.iter().rev().cloned().collect();
    assert_eq!(keys(usize::MAX, true), reversed);
    assert_eq!(keys(2, true), reversed[..2]);
    let ones: Vec<Query> = all.iter().take(150).map(|key| Query::all(KeySpan::one(key))).collect();
    let read = records.read(&ones, None).expect("records answer");
    assert!(read.found.iter().zip(&all).all(|(found, key)| found.len() == 1 && found[0].key == *key));
}

pub fn a_watch_shows_the_commits_behind_its_beginning_in_order(place: &Place) {
    let (one, other) = (place.client(), place.client());
    let first = write(one.as_ref(), &[put("a/0", "before"), put("b/0", "before")]);
    let watch = one.watch("a/", first).expect("records answer");
    let mut expected = Vec::new();
    for number in 0..50 {
        let (key, text) = (format!("a/{number}"), number.to_string());
        let revision = write(other.as_ref(), &[put(&key, &text), put("b/1", &text)]);
        expected.push(Event { revision, changes: vec![(key, Some(text.into_bytes()))] });
        write(one.as_ref(), &[put("b/2", "beside")]);
    }
    let both = [RecordChange::Delete("a/1".to_owned()), put("a/2", "new")];
    let revision = write(one.as_ref(), &both);
    let changes = vec![("a/1".to_owned(), None), ("a/2".to_owned(), Some(b"new".to_vec()))];
    expected.push(Event { revision, changes });
    let shown: Vec<Event> =
        expected.iter().map(|_| watch.next(PATIENCE).expect("what was committed")).collect();
    assert_eq!(shown, expected);
    assert_eq!(watch.next(Duration::ZERO), Err(WatchEnd::Quiet));
}

fn leased(key: &str, held: cluster::records::HeldLease) -> RecordChange {
    RecordChange::Put { key: key.to_owned(), value: b"x".to_vec(), lease: Some(held.lease) }
}

pub fn a_lease_that_is_not_kept_takes_its_records_along(place: &Place) {
    let (one, other) = (place.client(), place.client());
    let (one, other) = (one.as_ref(), other.as_ref());
    let short = one.lease_grant(place.short_lease()).expect("a lease");
    let long = one.lease_grant(Duration::from_secs(600)).expect("a lease");
    assert!(long.until > short.until && short.until > Moment::now());
    write(one, &[leased("a/short", short), leased("a/long", long), leased("a/freed", short)]);
    let kept = one.lease_keep(short.lease).expect("it is held");
    assert!(kept.until > short.until);
    write(one, &[put("a/freed", "stays")]);
    comes(|| value(other, "a/short").is_none().then_some(()));
    assert!(Moment::now() > kept.until, "gone before who holds it has stopped");
    assert_eq!(value(other, "a/freed").as_deref(), Some("stays"));
    assert_eq!(value(other, "a/long").as_deref(), Some("x"));
    assert_eq!(one.lease_keep(short.lease), Err(RecordsError::LeaseGone));
    assert_eq!(one.commit(&[], &[leased("a/late", short)]), Err(RecordsError::LeaseGone));
    assert_eq!(value(other, "a/late"), None);
}

pub fn a_lease_that_is_revoked_takes_its_records_along(place: &Place) {
    let (one, other) = (place.client(), place.client());
    let held = one.lease_grant(Duration::from_secs(600)).expect("a lease");
    let at = write(one.as_ref(), &[leased("a/1", held)]);
    let watch = one.watch("a/", at).expect("records answer");
    assert_eq!(one.lease_revoke(held.lease), Ok(()));
    assert_eq!(value(other.as_ref(), "a/1"), None);
    let event = watch.next(PATIENCE).expect("it is shown");
    assert_eq!(event.changes, [("a/1".to_owned(), None)]);
    assert_eq!(one.lease_keep(held.lease), Err(RecordsError::LeaseGone));
}

pub fn large_values_are_stored_whole(place: &Place) {
    let (one, other) = (place.client(), place.client());
    let bytes = |seed: u8| -> Vec<u8> { (0..500_000_u32).map(|number| number as u8 ^ seed).collect() };
    let key = |number: u8| format!("p/{number}");
    let mut changes: Vec<RecordChange> =
        (0..6).map(|number| RecordChange::put(key(number), bytes(number))).collect();
    changes.push(put("head", "six"));
    let refused = [Condition::Is("head".to_owned(), Revision(1))];
    assert_eq!(one.commit(&refused, &changes), Ok(Committed::Conflict));
    let nothing = other.read(&[Query::all(KeySpan::prefix("p/"))], None).expect("records answer");
    assert_eq!(nothing.found[0], [], "what was not committed is not there");
    write(one.as_ref(), &changes);
    for number in 0..6 {
        let read = other.read(&[Query::all(KeySpan::one(&key(number)))], None).expect("records answer");
        assert_eq!(read.found[0].len(), 1);
        assert!(read.found[0][0].value == bytes(number), "what was written is read");
    }
    assert_eq!(value(other.as_ref(), "head").as_deref(), Some("six"));
}
