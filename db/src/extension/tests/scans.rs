//! Scans of functions: what they see, and what their commits rely on.

use sandstorm::{Error, KeyRange, Table};
use wire::Status;

use super::world::{FOREIGN, ORDERED, TABLE, World, function};
use crate::extension::CallMode;
use crate::limits::TRANSACTION_READS_MAX;

function!(keys_of, |db, args, reply| {
    let mut scan = db.scan(Table::from_id(ORDERED), KeyRange::prefix(args.key()));
    while let Some(entry) = scan.next().await? {
        reply.write(entry.key)?;
        reply.write(b"=")?;
        reply.write(entry.value)?;
        reply.write(b" ")?;
    }
    Ok(())
});

#[test]
fn objects_come_in_the_order_of_their_keys_however_many() {
    let mut world = World::new();
    assert_eq!(world.call_once(keys_of, CallMode::Read, b""), (Status::Ok, Vec::new()));
    let mut expected = String::new();
    for number in (100..350).rev() {
        world.put(ORDERED, format!("a{number}").as_bytes(), b"v");
        world.put(ORDERED, format!("b{number}").as_bytes(), b"w");
    }
    (100..350).for_each(|number| expected += &format!("b{number}=w "));
    for mode in [CallMode::Read, CallMode::Write] {
        assert_eq!(world.call_once(keys_of, mode, b"b"), (Status::Ok, expected.clone().into_bytes()));
    }
}

function!(own_writes, |db, args, reply| {
    let table = Table::from_id(ORDERED);
    for key in [&b"b"[..], b"d", b"f", b"y"] {
        db.put(table, key, b"own").await?;
    }
    db.delete(table, b"c").await?;
    db.delete(table, b"absent").await?;
    let (one, all) = (KeyRange::all().limit(1), KeyRange::all().from(b"b").to(b"z"));
    for range in [all, all.reverse(), one, one.reverse(), all.after(b"b"), all.after(b"f").reverse()] {
        let mut scan = db.scan(table, range);
        while let Some(entry) = scan.next().await? {
            reply.write(entry.key)?;
            if entry.version == u64::MAX {
                reply.write(entry.value)?;
            }
        }
        reply.write(b" ")?;
    }
    Ok(())
});

#[test]
fn a_scan_sees_the_functions_own_writes_in_their_place() {
    let mut world = World::new();
    for key in [b"a", b"b", b"c", b"e", b"z"] {
        world.put(ORDERED, key, b"stored");
    }
    let expected = "bowndownefownyown yownfownedownbown a z downefownyown edownbown ";
    let (status, body) = world.call_once(own_writes, CallMode::Write, b"");
    assert_eq!((status, String::from_utf8_lossy(&body).as_ref()), (Status::Ok, expected));
    assert_eq!(
        world.call_once(keys_of, CallMode::Read, b"").1,
        b"a=stored b=own d=own e=stored f=own y=own z=stored "
    );
}

function!(count_and_write, |db, args, reply| {
    let table = Table::from_id(ORDERED);
    let mut scan = db.scan(table, KeyRange::prefix(b"q"));
    let mut met = 0;
    while scan.next().await?.is_some() {
        met += 1;
    }
    db.yield_now().await;
    db.put(table, b"count", &[met]).await?;
    reply.u8(met)
});

#[test]
fn a_function_is_done_again_when_its_range_has_changed_and_not_for_others() {
    let mut world = World::new();
    world.put(ORDERED, b"q1", b"");
    let extension = World::extension(count_and_write, CallMode::Write);
    for (key, counted) in [(&b"q0"[..], 2), (b"q2", 3), (b"p", 3), (b"r", 3)] {
        assert!(world.start(&extension, b"", b"", 7));
        assert_eq!(world.turn(), []);
        world.put(ORDERED, key, b"");
        let mut ended = Vec::new();
        while ended.is_empty() {
            ended = world.turn();
        }
        assert_eq!(ended, [(7, (Status::Ok, vec![counted]))], "{key:?} came meanwhile");
        assert_eq!(world.value(ORDERED, b"count"), Some(vec![counted]));
    }
}

#[test]
fn a_function_is_done_again_when_what_it_met_has_gone_or_changed() {
    let mut world = World::new();
    for key in [b"q0", b"q1", b"q2"] {
        world.put(ORDERED, key, b"");
    }
    let extension = World::extension(count_and_write, CallMode::Write);
    for counted in (0..3).rev() {
        assert!(world.start(&extension, b"", b"", 7));
        assert_eq!(world.turn(), []);
        world.delete(ORDERED, &[b'q', b'0' + counted]);
        let mut ended = Vec::new();
        while ended.is_empty() {
            ended = world.turn();
        }
        assert_eq!(ended, [(7, (Status::Ok, vec![counted]))]);
    }
}

function!(refused, |db, args, reply| {
    let error =
        async |table: u32, range: KeyRange<'_>| db.scan(Table::from_id(table), range).next().await.err();
    assert_eq!(error(TABLE, KeyRange::all()).await, Some(Error::NotOrdered));
    assert_eq!(error(FOREIGN, KeyRange::all()).await, Some(Error::UnknownTable));
    assert_eq!(error(99, KeyRange::all()).await, Some(Error::UnknownTable));
    let long = args.bytes();
    assert_eq!(error(ORDERED, KeyRange::all().from(long)).await, Some(Error::KeyTooLarge));
    assert_eq!(error(ORDERED, KeyRange::all().after(long)).await, Some(Error::KeyTooLarge));
    for range in [KeyRange::all().limit(0), KeyRange::all().from(b"b").to(b"a"), KeyRange::all().to(b"")] {
        assert_eq!(db.scan(Table::from_id(ORDERED), range).next().await, Ok(None));
    }
    Ok(())
});

#[test]
fn what_cannot_be_scanned_is_refused() {
    let mut world = World::new();
    world.put(ORDERED, b"key", b"");
    for mode in [CallMode::Read, CallMode::Write] {
        let extension = World::extension(refused, mode);
        assert_eq!(world.call(&extension, b"", &[0; 65_536]).0, Status::Ok);
    }
}

#[test]
fn a_write_function_scans_as_much_as_one_commit_takes() {
    let mut world = World::new();
    for number in 0..=TRANSACTION_READS_MAX as u32 {
        world.put(ORDERED, &[&b"q"[..], &number.to_be_bytes()].concat(), b"");
    }
    assert_eq!(world.call_once(keys_of, CallMode::Read, b"q").0, Status::Ok);
    assert_eq!(world.call_once(keys_of, CallMode::Write, b"q").0, Status::LimitExceeded);
    world.delete(ORDERED, &[&b"q"[..], &0_u32.to_be_bytes()].concat());
    assert_eq!(world.call_once(keys_of, CallMode::Write, b"q").0, Status::Ok);
}
