//! Whole tables in functions, and floating point numbers: what is met, and what is refused.

use sandstorm::{Cursor, EntryPage, Error, Table};
use wire::Status;

use super::world::{FOREIGN, ORDERED, TABLE, World, function};
use crate::extension::CallMode;

function!(first_bytes, |db, args, reply| {
    let (mut page, mut next) = (EntryPage::new().limit(7), Some(Cursor::start()));
    while let Some(cursor) = next {
        next = db.enumerate(args.table(), cursor, &mut page).await?;
        assert!(page.len() <= 7 && page.iter().count() == page.len());
        for entry in &page {
            assert_eq!(entry.key, entry.value);
            reply.write(entry.key)?;
        }
        db.yield_now().await;
    }
    Ok(())
});

fn numbers(body: &[u8]) -> Vec<u32> {
    let mut numbers: Vec<_> =
        body.chunks(4).map(|key| u32::from_le_bytes(key.try_into().expect("four bytes"))).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn each_object_that_stays_is_met_once_while_others_come_and_go() {
    let mut world = World::new();
    assert_eq!(world.call_once(first_bytes, CallMode::Read, b""), (Status::Ok, Vec::new()));
    let put = |world: &World, number: u32| _ = world.put(TABLE, &number.to_le_bytes(), &number.to_le_bytes());
    (0..500).for_each(|number| put(&world, number));
    let extension = World::extension(first_bytes, CallMode::Read);
    assert!(world.start(&extension, b"", b"", 7));
    let (mut come, mut ended) = (1_000, Vec::new());
    while ended.is_empty() {
        // The table grows and loses objects between two pages.
        (come..come + 10).for_each(|number| put(&world, number));
        (come..come + 8).for_each(|number| world.delete(TABLE, &number.to_le_bytes()));
        come += 10;
        ended = world.turn();
    }
    let (_, (status, body)) = ended.remove(0);
    let met = numbers(&body);
    assert_eq!(status, Status::Ok);
    assert!(met.windows(2).all(|pair| pair[0] < pair[1]), "none is met twice");
    assert_eq!(met[..500], (0..500).collect::<Vec<_>>());
}

function!(resumed, |db, args, reply| {
    let mut page = EntryPage::new().limit(3);
    let next = db.enumerate(args.table(), Cursor::from_bytes(args.bytes())?, &mut page).await?;
    let next = next.unwrap_or(Cursor::start());
    reply.u8(next.as_bytes().len() as u8)?;
    reply.write(next.as_bytes())?;
    page.iter().try_for_each(|entry| reply.write(entry.key))
});

#[test]
fn an_enumeration_goes_on_where_another_invocation_has_ended() {
    let mut world = World::new();
    (0..50_u32).for_each(|number| _ = world.put(TABLE, &number.to_le_bytes(), b""));
    let (extension, mut cursor, mut met) =
        (World::extension(resumed, CallMode::Read), Vec::new(), Vec::new());
    loop {
        let (status, body) = world.call(&extension, b"", &cursor);
        assert_eq!(status, Status::Ok);
        let (next, keys) = body[1..].split_at(usize::from(body[0]));
        met.extend_from_slice(keys);
        cursor = next.to_vec();
        if cursor.is_empty() {
            break;
        }
    }
    assert_eq!(numbers(&met), (0..50).collect::<Vec<_>>());
}

function!(refused, |db, args, reply| {
    let mut page = EntryPage::new().limit(4);
    let cursor = db.enumerate(args.table(), Cursor::start(), &mut page).await?.expect("there is more");
    let mut error =
        async |table: u32, cursor: Cursor| db.enumerate(Table::from_id(table), cursor, &mut page).await.err();
    assert_eq!(error(ORDERED, Cursor::start()).await, None);
    assert_eq!(error(ORDERED, cursor).await, Some(Error::CursorInvalid));
    for made_up in [&b"x"[..], &[0; 24], &[0xff; 24], &[7; 64]] {
        assert_eq!(error(args.table().id(), Cursor::from_bytes(made_up)?).await, Some(Error::CursorInvalid));
    }
    assert_eq!(Cursor::from_bytes(&[7; 65]), Err(Error::CursorInvalid));
    for unknown in [FOREIGN, 99] {
        assert_eq!(error(unknown, Cursor::start()).await, Some(Error::UnknownTable));
    }
    let none = db.enumerate(args.table(), Cursor::start(), &mut EntryPage::new().limit(0)).await;
    assert_eq!(none.err(), Some(Error::BadArguments));
    db.enumerate(args.table(), Cursor::from_bytes(b"nobody's")?, &mut page).await.map(drop)
});

#[test]
fn cursors_and_tables_of_others_are_refused_and_so_is_a_function_that_writes() {
    let mut world = World::new();
    (0..50_u32).for_each(|number| _ = world.put(TABLE, &number.to_le_bytes(), b""));
    assert_eq!(world.call_once(refused, CallMode::Read, b"").0, Status::CursorInvalid);
    assert_eq!(world.call_once(refused, CallMode::Write, b"").0, Status::NotSerializable);
    assert_eq!(world.call_once(first_bytes, CallMode::Write, b"").0, Status::NotSerializable);
}

function!(floats, |db, args, reply| {
    let (table, key) = (args.table(), args.key());
    assert_eq!(db.increment_float(table, key, 0.5).await?, 0.5);
    assert_eq!(db.increment_float(table, key, -2.25).await, Ok(-1.75));
    for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(db.increment_float(table, key, wrong).await, Err(Error::OutOfRange));
    }
    db.put(table, b"most", &f64::MAX.to_le_bytes()).await?;
    assert_eq!(db.increment_float(table, b"most", f64::MAX).await, Err(Error::Overflow));
    db.put(table, b"text", b"abc").await?;
    assert_eq!(db.increment_float(table, b"text", 1.0).await, Err(Error::NotANumber));
    assert_eq!(db.increment_float(Table::from_id(FOREIGN), key, 1.0).await, Err(Error::UnknownTable));
    reply.u64(db.increment_float(table, key, 2.0).await?.to_bits())
});

#[test]
fn floating_point_numbers_add_up_and_what_is_none_is_refused() {
    let mut world = World::new();
    let sum = 0.25_f64.to_le_bytes().to_vec();
    assert_eq!(world.call_once(floats, CallMode::Write, b"n"), (Status::Ok, sum.clone()));
    assert_eq!(world.value(TABLE, b"n"), Some(sum));
    assert_eq!(world.call_once(floats, CallMode::Read, b"n").0, Status::ReadOnly);
}
