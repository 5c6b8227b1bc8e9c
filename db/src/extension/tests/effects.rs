//! Tests of the reads and writes of functions.

use sandstorm::{Condition, Error, Table};
use wire::Status;

use super::world::{FOREIGN, SECOND, TABLE, World, function};
use crate::extension::CallMode;
use crate::limits::{TRANSACTION_READS_MAX, TRANSACTION_WRITES_MAX};

function!(echo, |db, args, reply| {
    reply.u32(args.table().id())?;
    reply.write(args.key())?;
    reply.write(args.bytes())
});

function!(get, |db, args, reply| {
    let record = db.get_record(args.table(), args.key()).await?.ok_or(Error::NotFound)?;
    assert!(record.version > 0);
    reply.write(record.value)
});

#[test]
fn key_table_and_arguments_arrive() {
    let mut world = World::new();
    let extension = World::extension(echo, CallMode::Read);
    for (key, arguments) in [(&b""[..], &b""[..]), (b"k", b"arguments"), (&[1; 65_535], &[2; 100_000])] {
        let (status, body) = world.call(&extension, key, arguments);
        assert_eq!(status, Status::Ok);
        assert_eq!(body, [&TABLE.to_le_bytes(), key, arguments].concat());
    }
}

#[test]
fn a_get_sees_what_the_store_has() {
    let mut world = World::new();
    world.put(TABLE, b"key", b"value");
    world.put(TABLE, b"empty", b"");
    assert_eq!(world.call_once(get, CallMode::Read, b"key"), (Status::Ok, b"value".to_vec()));
    assert_eq!(world.call_once(get, CallMode::Read, b"empty"), (Status::Ok, Vec::new()));
    assert_eq!(world.call_once(get, CallMode::Read, b"absent").0, Status::NotFound);
    assert_eq!(world.call_once(get, CallMode::Write, b"key").1, b"value");
}

function!(write_and_look, |db, args, reply| {
    let table = args.table();
    db.put(table, b"new", b"first").await?;
    let lent = db.get(table, b"new").await?.ok_or(Error::NotFound)?;
    db.put(table, b"new", b"second").await?;
    assert_eq!(db.get_record(table, b"new").await?.map(|record| record.version), Some(u64::MAX));
    reply.write(lent)?;
    reply.write(db.get(table, b"new").await?.ok_or(Error::NotFound)?)?;
    db.delete(table, b"old").await?;
    assert!(db.get(table, b"old").await?.is_none());
    db.put(Table::from_id(SECOND), b"other", b"table").await?;
    if args.key() == b"fail" { Err(Error::Application(4)) } else { Ok(()) }
});

#[test]
fn writes_are_seen_by_the_function_and_applied_together_at_its_good_end() {
    let mut world = World::new();
    world.put(TABLE, b"old", b"value");
    let (status, body) = world.call_once(write_and_look, CallMode::Write, b"");
    assert_eq!((status, body), (Status::Ok, b"firstsecond".to_vec()));
    assert_eq!(world.value(TABLE, b"new"), Some(b"second".to_vec()));
    assert_eq!(world.value(TABLE, b"old"), None);
    assert_eq!(world.value(SECOND, b"other"), Some(b"table".to_vec()));
}

#[test]
fn a_function_that_fails_leaves_no_write_behind() {
    let mut world = World::new();
    world.put(TABLE, b"old", b"value");
    assert_eq!(world.call_once(write_and_look, CallMode::Write, b"fail").0, Status::ExtensionError);
    assert_eq!(world.value(TABLE, b"new"), None);
    assert_eq!(world.value(TABLE, b"old"), Some(b"value".to_vec()));
    assert_eq!(world.value(SECOND, b"other"), None);
}

#[test]
fn a_read_function_may_not_write() {
    let mut world = World::new();
    assert_eq!(world.call_once(write_and_look, CallMode::Read, b"").0, Status::ReadOnly);
    assert_eq!(world.value(TABLE, b"new"), None);
}

function!(conditions, |db, args, reply| {
    let table = args.table();
    let there = db.get_record(table, b"there").await?.ok_or(Error::NotFound)?;
    let put = async |key: &[u8], condition| db.put_if(table, key, b"x", condition).await;
    assert_eq!(put(b"there", Condition::Absent).await, Err(Error::ConditionFailed));
    assert_eq!(put(b"missing", Condition::Present).await, Err(Error::ConditionFailed));
    assert_eq!(put(b"missing", Condition::Version(3)).await, Err(Error::ConditionFailed));
    assert_eq!(put(b"there", Condition::Version(there.version + 1)).await, Err(Error::ConditionFailed));
    assert_eq!(db.delete_if(table, b"missing", Condition::Present).await, Err(Error::ConditionFailed));
    put(b"there", Condition::Version(there.version)).await?;
    put(b"missing", Condition::Absent).await?;
    put(b"missing", Condition::Present).await?;
    assert_eq!(put(b"missing", Condition::Absent).await, Err(Error::ConditionFailed));
    db.delete_if(table, b"missing", Condition::Present).await?;
    put(b"missing", Condition::Absent).await
});

#[test]
fn conditions_look_at_the_store_and_at_earlier_writes() {
    let mut world = World::new();
    world.put(TABLE, b"there", b"value");
    assert_eq!(world.call_once(conditions, CallMode::Write, b"").0, Status::Ok);
    assert_eq!(world.value(TABLE, b"there"), Some(b"x".to_vec()));
    assert_eq!(world.value(TABLE, b"missing"), Some(b"x".to_vec()));
}

function!(put_if_absent, |db, args, reply| {
    db.put_if(args.table(), args.key(), b"mine", Condition::Absent).await
});

#[test]
fn a_failed_condition_answers_the_version_that_is_there() {
    let mut world = World::new();
    let version = world.put(TABLE, b"key", b"theirs");
    let (status, body) = world.call_once(put_if_absent, CallMode::Write, b"key");
    assert_eq!((status, body), (Status::ConditionFailed, version.to_le_bytes().to_vec()));
}

function!(count_twice, |db, args, reply| {
    db.increment(args.table(), args.key(), 5).await?;
    reply.i64(db.increment(args.table(), args.key(), -2).await?)
});

#[test]
fn increments_add_up_and_refuse_what_is_no_number() {
    let mut world = World::new();
    assert_eq!(
        world.call_once(count_twice, CallMode::Write, b"n"),
        (Status::Ok, 3_i64.to_le_bytes().to_vec())
    );
    assert_eq!(
        world.call_once(count_twice, CallMode::Write, b"n"),
        (Status::Ok, 6_i64.to_le_bytes().to_vec())
    );
    assert_eq!(world.value(TABLE, b"n"), Some(6_i64.to_le_bytes().to_vec()));
    world.put(TABLE, b"text", b"seven b");
    assert_eq!(world.call_once(count_twice, CallMode::Write, b"text").0, Status::NotANumber);
    world.put(TABLE, b"top", &(i64::MAX - 1).to_le_bytes());
    assert_eq!(world.call_once(count_twice, CallMode::Write, b"top").0, Status::Overflow);
}

function!(read_foreign, |db, args, reply| {
    let table = Table::from_id(FOREIGN);
    assert_eq!(db.put(table, b"key", b"stolen").await, Err(Error::UnknownTable));
    assert_eq!(db.increment(table, b"key", 1).await, Err(Error::UnknownTable));
    assert_eq!(db.delete(table, b"key").await, Err(Error::UnknownTable));
    let mut records = [None];
    assert_eq!(db.get_many(table, &[b"key"], &mut records).await, Err(Error::UnknownTable));
    reply.write(db.get(table, b"key").await?.unwrap_or_default())
});

#[test]
fn tables_of_others_are_as_absent_as_those_that_never_were() {
    let mut world = World::new();
    world.put(FOREIGN, b"key", b"secret");
    assert_eq!(world.call_once(read_foreign, CallMode::Write, b""), (Status::UnknownTable, Vec::new()));
    assert_eq!(world.value(FOREIGN, b"key"), Some(b"secret".to_vec()));
}

function!(find_tables, |db, args, reply| {
    assert_eq!(db.table("third").await, Err(Error::UnknownTable));
    assert_eq!(db.table("\u{fc}").await, Err(Error::UnknownTable));
    reply.u32(db.table("first").await?.id())?;
    reply.u32(db.table("second").await?.id())
});

#[test]
fn tables_are_found_by_name_within_the_tenant() {
    let mut world = World::new();
    let body = [TABLE.to_le_bytes(), SECOND.to_le_bytes()].concat();
    assert_eq!(world.call_once(find_tables, CallMode::Read, b""), (Status::Ok, body));
}

function!(many, |db, args, reply| {
    let keys: [[u8; 2]; 200] = core::array::from_fn(|index| (index as u16).to_le_bytes());
    let keys: [&[u8]; 200] = core::array::from_fn(|index| &keys[index][..]);
    let mut records = [None; 200];
    db.put(args.table(), keys[0], b"own").await?;
    db.get_many(args.table(), &keys, &mut records).await?;
    for record in records {
        reply.write(record.map_or(&b"-"[..], |record| record.value))?;
    }
    Ok(())
});

#[test]
fn get_many_answers_what_gets_would() {
    let mut world = World::new();
    let mut expected = b"own".to_vec();
    for index in 1..200_u16 {
        if index % 3 == 0 {
            world.put(TABLE, &index.to_le_bytes(), &[index as u8; 7]);
            expected.extend([index as u8; 7]);
        } else {
            expected.push(b'-');
        }
    }
    assert_eq!(world.call_once(many, CallMode::Write, b""), (Status::Ok, expected));
}

function!(oversized, |db, args, reply| {
    let table = args.table();
    let (key, value) = (&args.bytes()[..65_536], args.bytes());
    assert_eq!(db.get(table, key).await, Err(Error::KeyTooLarge));
    assert_eq!(db.put(table, key, b"").await, Err(Error::KeyTooLarge));
    assert_eq!(db.get_many(table, &[key], &mut [None]).await, Err(Error::KeyTooLarge));
    db.put(table, &key[1..], value).await?;
    for _ in 0..2 {
        db.put(table, b"key", value).await?;
    }
    assert_eq!(db.put(table, b"other", value).await, Err(Error::LimitExceeded));
    db.put(table, b"small", b"value").await
});

#[test]
fn keys_values_and_write_sets_have_limits() {
    let mut world = World::new();
    let extension = World::extension(oversized, CallMode::Write);
    let value = vec![5; 1 << 20];
    assert_eq!(world.call(&extension, b"", &value).0, Status::Ok);
    assert_eq!(world.value(TABLE, b"key"), Some(value.clone()));
    assert_eq!(world.value(TABLE, &value[..65_535]), Some(value));
    assert_eq!(world.value(TABLE, b"small"), Some(b"value".to_vec()));
    assert_eq!(world.value(TABLE, b"other"), None);
}

function!(writes_many, |db, args, reply| {
    let count = args.reader().u32()?;
    for number in 0..count {
        db.put(args.table(), &number.to_le_bytes(), &number.to_le_bytes()).await?;
    }
    for number in 0..count {
        assert_eq!(db.get(args.table(), &number.to_le_bytes()).await?, Some(&number.to_le_bytes()[..]));
    }
    Ok(())
});

function!(reads_many, |db, args, reply| {
    for number in 0..args.reader().u32()? {
        db.get(args.table(), &number.to_le_bytes()).await?;
    }
    Ok(())
});

#[test]
fn a_write_function_writes_and_reads_as_much_as_one_commit_takes() {
    let mut world = World::new();
    for number in 0..TRANSACTION_WRITES_MAX as u64 {
        world.put(TABLE, &number.to_le_bytes(), b"of the index's size");
    }
    let writes = TRANSACTION_WRITES_MAX as u32;
    let writer = World::extension(writes_many, CallMode::Write);
    assert_eq!(world.call(&writer, b"", &(writes + 1).to_le_bytes()).0, Status::LimitExceeded);
    assert_eq!(world.value(TABLE, &0_u32.to_le_bytes()), None);
    assert_eq!(world.call(&writer, b"", &writes.to_le_bytes()).0, Status::Ok);
    assert!((0..writes).all(|number| world.value(TABLE, &number.to_le_bytes()).is_some()));
    let reads = TRANSACTION_READS_MAX as u32;
    let reader = World::extension(reads_many, CallMode::Write);
    assert_eq!(world.call(&reader, b"", &reads.to_le_bytes()).0, Status::Ok);
    assert_eq!(world.call(&reader, b"", &(reads + 1).to_le_bytes()).0, Status::LimitExceeded);
    let free = World::extension(reads_many, CallMode::Read);
    assert_eq!(world.call(&free, b"", &(reads * 4).to_le_bytes()).0, Status::Ok);
}

function!(live_for, |db, args, reply| {
    let table = args.table();
    db.put(table, b"a while", b"value").for_ms(1_000).await?;
    db.put(table, b"for good", b"value").await?;
    db.put(table, b"a while after all", b"value").await?;
    db.put(table, b"a while after all", b"value").for_ms(1_000).await?;
    db.put(table, b"for good after all", b"value").for_ms(1_000).await?;
    db.put(table, b"for good after all", b"value").await?;
    for ttl_ms in [0, (1 << 42) + 1, u64::MAX] {
        assert_eq!(db.put(table, b"never", b"").for_ms(ttl_ms).await, Err(Error::OutOfRange));
    }
    assert!(db.get(table, b"a while").await?.is_some(), "own writes are seen");
    reply.i64(db.increment(table, b"number", 3).await?)
});

#[test]
fn objects_are_put_for_a_time_and_numbers_keep_theirs() {
    let mut world = World::new();
    let store = std::sync::Arc::clone(world.lent.core.store());
    store.advance_clock(10_000);
    let number = store::hash(b"number");
    let put = |expires_ms| {
        let pinned = world.lent.core.pin();
        let always = store::Condition::Always;
        pinned.put_until(&world.table(TABLE), number, b"number", &[0; 8], expires_ms, always).map(|_| ())
    };
    put(10_500).expect("there is memory");
    let (status, body) = world.call_once(live_for, CallMode::Write, b"");
    assert_eq!((status, body), (Status::Ok, 3_i64.to_le_bytes().to_vec()));
    store.advance_clock(10_499);
    for key in [&b"a while"[..], b"a while after all", b"for good", b"for good after all", b"number"] {
        assert!(world.value(TABLE, key).is_some());
    }
    store.advance_clock(10_500);
    assert!(world.value(TABLE, b"number").is_none(), "a number expires when it would have");
    store.advance_clock(11_000);
    assert!(world.value(TABLE, b"a while").is_none() && world.value(TABLE, b"a while after all").is_none());
    assert!(world.value(TABLE, b"for good").is_some() && world.value(TABLE, b"for good after all").is_some());
    assert!(world.value(TABLE, b"never").is_none());
}
