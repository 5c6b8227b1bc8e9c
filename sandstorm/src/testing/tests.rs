//! The SDK on its in-memory host: what an author relies on.

use alloc::vec::Vec;
use core::cell::RefCell;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::future::Future;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::slice;
use core::task::Context;
use core::task::Poll;
use core::task::Waker;

use super::MemoryDb;
use super::drive;
use super::host::HOST;
use super::host::Invocation;
use crate::Args;
use crate::Condition;
use crate::Cursor;
use crate::Db;
use crate::EntryPage;
use crate::Error;
use crate::KeyRange;
use crate::Level;
use crate::Reply;
use crate::Table;
use crate::abi::Call;
use crate::abi::Code;
use crate::abi::Host;
use crate::abi::OK;
use crate::abi::PENDING;
use crate::abi::RawEntry;
use crate::abi::RawListed;
use crate::abi::RawRange;
use crate::abi::RawReply;
use crate::abi::RawScanned;
use crate::abi::RawSlice;
use crate::abi::Services;
use crate::entry;

async fn transfer(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let amount = args.reader().i64()?;
    db.increment(args.table(), b"to", amount).await?;
    let left = db.increment(args.table(), args.key(), -amount).await?;
    if left < 0 {
        reply.write(b"not enough")?;
        return Err(Error::Application(402));
    }
    reply.i64(left)
}

#[test]
fn writes_apply_together_and_only_at_a_good_end() {
    for stalling in [false, true] {
        let db = MemoryDb::new();
        db.set_stalling(stalling);
        let accounts = db.table("accounts");
        db.put(accounts, b"from", &10i64.to_le_bytes());
        assert_eq!(db.call(transfer, accounts, b"from", &7i64.to_le_bytes()).unwrap(), 3i64.to_le_bytes());
        assert_eq!(db.call(transfer, accounts, b"from", &7i64.to_le_bytes()), Err(Error::Application(402)));
        assert_eq!(db.get(accounts, b"to").unwrap(), 7i64.to_le_bytes());
        assert_eq!(db.get(accounts, b"from").unwrap(), 3i64.to_le_bytes());
        assert_eq!(db.call_read(transfer, accounts, b"from", &1i64.to_le_bytes()), Err(Error::ReadOnly));
        assert_eq!(db.call(transfer, accounts, b"from", b"short"), Err(Error::BadArguments));
    }
}

async fn remember(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    db.put(args.table(), args.key(), b"value").for_ms(args.reader().u64()?).await?;
    reply.i64(db.increment(args.table(), b"count", 1).await?)
}

#[test]
fn what_is_put_for_a_time_is_gone_after_it() {
    let db = MemoryDb::new();
    let table = db.table("t");
    db.set_now_ms(5_000);
    for ttl_ms in [0, u64::MAX] {
        assert_eq!(db.call(remember, table, b"k", &u64::to_le_bytes(ttl_ms)), Err(Error::OutOfRange));
    }
    db.call(remember, table, b"k", &100_u64.to_le_bytes()).unwrap();
    db.call(remember, table, b"count", &100_u64.to_le_bytes()).unwrap_err();
    db.set_now_ms(5_099);
    assert_eq!(db.get(table, b"k").unwrap(), b"value");
    db.set_now_ms(5_100);
    assert_eq!((db.get(table, b"k"), db.version(table, b"k")), (None, None));
    assert_eq!(db.get(table, b"count").unwrap(), 1_i64.to_le_bytes());
}

#[test]
fn reads_see_the_invocations_own_writes() {
    let db = MemoryDb::new();
    let table = db.table("t");
    db.put(table, b"k", b"old");
    let run = async |db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>| {
        let old = db.get(args.table(), b"k").await?;
        db.put(args.table(), b"k", b"new").await?;
        assert_eq!(db.get(args.table(), b"k").await?, Some(&b"new"[..]));
        db.delete(args.table(), b"k").await?;
        assert_eq!(db.get(args.table(), b"k").await?, None);
        reply.write(old.ok_or(Error::NotFound)?)
    };
    assert_eq!(db.call(run, table, b"", b"").unwrap(), b"old");
    assert_eq!(db.get(table, b"k"), None);
}

#[test]
fn conditions_decide_on_version_and_presence() {
    let db = MemoryDb::new();
    let table = db.table("t");
    db.put(table, b"k", b"1");
    let version = db.version(table, b"k").unwrap();
    let write = async |db: &Db<'_>, condition| db.put_if(table, b"k", b"2", condition).await;
    for (condition, expected) in [
        (Condition::Absent, Err(Error::ConditionFailed)),
        (Condition::Version(version + 1), Err(Error::ConditionFailed)),
        (Condition::Version(version), Ok(())),
        (Condition::Present, Ok(())),
    ] {
        let result = db.call(async |db, _, _| write(db, condition).await, table, b"", b"");
        assert_eq!(result.map(drop), expected);
        db.delete(table, b"other");
        if expected.is_ok() {
            assert!(db.version(table, b"k").unwrap() > version);
        }
    }
}

#[test]
fn get_many_answers_beyond_one_chunk() {
    for stalling in [false, true] {
        let db = MemoryDb::new();
        db.set_stalling(stalling);
        let table = db.table("t");
        for index in (0..100u32).step_by(3) {
            db.put(table, &index.to_le_bytes(), &index.to_be_bytes());
        }
        let run = async |db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>| {
            let keys: Vec<[u8; 4]> = (0..100u32).map(u32::to_le_bytes).collect();
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            let mut records = [None; 100];
            db.get_many(args.table(), &keys, &mut records).await?;
            for (index, record) in records.iter().enumerate() {
                let found = record.map(|record| record.value.to_vec());
                let expected = index.is_multiple_of(3).then(|| (index as u32).to_be_bytes().to_vec());
                assert_eq!(found, expected, "key {index}");
            }
            db.get_many(args.table(), &keys, &mut records[1..]).await
        };
        assert_eq!(db.call_read(run, table, b"", b""), Err(Error::BadArguments));
    }
}

#[test]
fn a_future_may_be_polled_again_or_forgotten() {
    let db = MemoryDb::new();
    db.set_stalling(true);
    let table = db.table("t");
    db.put(table, b"k", b"v");
    let run = async |db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>| {
        let mut context = Context::from_waker(Waker::noop());
        let mut forgotten = db.get(args.table(), b"k");
        assert!(Pin::new(&mut forgotten).poll(&mut context).is_pending());
        assert_ne!(ManuallyDrop::new(forgotten).0.ticket, 0);
        let mut twice = db.get(args.table(), b"k");
        for _ in 0..2 {
            assert!(Pin::new(&mut twice).poll(&mut context).is_pending());
            assert_eq!(Pin::new(&mut twice).poll(&mut context), Poll::Ready(Ok(Some(&b"v"[..]))));
        }
        db.yield_now().await;
        reply.write(b"fine")
    };
    assert_eq!(db.call_read(run, table, b"", b"").unwrap(), b"fine");
}

#[test]
fn tables_are_found_by_name_and_unknown_ones_refused() {
    let db = MemoryDb::new();
    let table = db.table("known");
    assert_eq!(db.table("known"), table);
    let run = async |db: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>| {
        assert_eq!(db.table("unknown").await, Err(Error::UnknownTable));
        assert_eq!(db.get(Table::from_id(77), b"").await, Err(Error::UnknownTable));
        reply.u32(db.table("known").await?.id())
    };
    assert_eq!(db.call_read(run, table, b"", b"").unwrap(), table.id().to_le_bytes());
}

#[test]
fn a_long_log_line_is_cut_at_a_character() {
    let db = MemoryDb::new();
    db.set_now_ms(17);
    let table = db.table("t");
    let run = async |db: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>| {
        db.log(Level::Warning, format_args!("{} at {}", "now", db.now_ms()));
        db.log(Level::Debug, format_args!("x{}", "ß".repeat(400)));
        Ok(())
    };
    db.call_read(run, table, b"", b"").unwrap();
    let log = db.take_log();
    assert_eq!(log[0], (Level::Warning, "now at 17".into()));
    assert_eq!(log[1].1.len(), 255);
    assert!(log[1].1.ends_with('ß'));
    assert!(db.take_log().is_empty());
}

#[test]
fn keys_and_values_beyond_the_limits_are_refused() {
    let db = MemoryDb::new();
    let table = db.table("t");
    let run = async |db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>| {
        let long = alloc::vec![0; (1 << 20) + 1];
        assert_eq!(db.put(args.table(), &long[..1 << 16], b"").await, Err(Error::KeyTooLarge));
        assert_eq!(db.put(args.table(), b"k", &long).await, Err(Error::ValueTooLarge));
        db.put(args.table(), b"k", &i64::MAX.to_le_bytes()).await?;
        assert_eq!(db.increment(args.table(), b"k", 1).await, Err(Error::Overflow));
        db.put(args.table(), b"k", b"word").await?;
        db.increment(args.table(), b"k", 1).await.map(drop)
    };
    assert_eq!(db.call(run, table, b"", b""), Err(Error::NotANumber));
}

#[test]
fn a_table_is_met_page_by_page_and_not_by_a_function_that_writes() {
    for stalling in [false, true] {
        let db = MemoryDb::new();
        db.set_stalling(stalling);
        let (table, other) = (db.table("t"), db.table("other"));
        db.put(other, b"not this", b"");
        for number in 0..100u32 {
            db.put(table, &number.to_le_bytes(), b"v");
        }
        let run = async |db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>| {
            let (mut page, mut next) = (EntryPage::new().limit(64), Some(Cursor::start()));
            while let Some(cursor) = next {
                next = db.enumerate(args.table(), cursor, &mut page).await?;
                assert!((1..=32).contains(&page.len()));
                page.iter().try_for_each(|entry| reply.write(entry.key))?;
                let strange = db.enumerate(other, Cursor::from_bytes(&[7; 20])?, &mut page).await;
                assert_eq!((strange, page.len()), (Err(Error::CursorInvalid), 0));
                assert!(next.is_none_or(|next| next.as_bytes().len() <= 64));
            }
            Ok(())
        };
        let met = db.call_read(run, table, b"", b"").unwrap();
        let mut met: Vec<_> = met.chunks(4).map(|key| u32::from_le_bytes(key.try_into().unwrap())).collect();
        met.sort_unstable();
        assert_eq!(met, (0..100).collect::<Vec<_>>());
        assert_eq!(db.call(run, table, b"", b""), Err(Error::NotSerializable));
    }
}

#[test]
#[should_panic(expected = "polled after it was ready")]
fn a_scan_lends_one_object_at_a_time_to_a_caller_who_polls_by_hand() {
    let db = MemoryDb::new();
    let table = db.ordered_table("t");
    db.put(table, b"first", b"");
    db.put(table, b"second", b"");
    let run = async |db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>| {
        let mut scan = db.scan(args.table(), KeyRange::all());
        let mut next = scan.next();
        let mut poll = || Pin::new(&mut next).poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_ready());
        assert!(poll().is_pending(), "it panics");
        Ok(())
    };
    db.call_read(run, table, b"", b"").unwrap();
}

/// Size of the memory for one page of a [`Copying`] host.
const PAGE_BYTES: usize = 1 << 10;

/// The context of a host that copies what it lends, and uses the memory of a page again for the next one: two halves
/// for each scan and each page, since the last key of the page before has to stay.
struct Copying<'s> {
    invocation: Invocation<'s>,
    pages: RefCell<Vec<[Vec<u8>; 2]>>,
}

impl Copying<'_> {
    /// Copies keys and values into the memory of `page`, but not into the half in which `kept` lies. Overwrites all of
    /// what was there.
    unsafe fn copy(&self, entries: &mut [RawEntry], page: &mut RawSlice, kept: RawSlice) {
        let mut pages = self.pages.borrow_mut();
        let index = pages.iter().position(|[first, _]| first.as_ptr() == page.address);
        assert_eq!(index.is_none(), page.bytes == 0, "a page is empty, or as the host stored it");
        let index = index.unwrap_or_else(|| {
            pages.push([(); 2].map(|()| alloc::vec![0; PAGE_BYTES]));
            pages.len() - 1
        });
        *page = RawSlice::of(&pages[index][0]);
        let is_kept = pages[index][0].as_ptr_range().contains(&kept.address);
        let half = &mut pages[index][usize::from(is_kept)];
        half.fill(0xdd);
        let (start, mut used) = (half.as_mut_ptr(), 0);
        for entry in entries {
            for slice in [&mut entry.key, &mut entry.record.value] {
                assert!(used + slice.bytes <= PAGE_BYTES);
                // SAFETY: there is room in this half, and what MemoryDb lends lies elsewhere.
                let place = unsafe { start.add(used) };
                // SAFETY: as above.
                unsafe { place.copy_from_nonoverlapping(slice.address, slice.bytes) };
                slice.address = place;
                used += slice.bytes;
            }
        }
    }
}

unsafe extern "C" fn scan_by_copy(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    range: *const RawRange,
    entries: *mut RawEntry,
    capacity: usize,
    scanned: *mut RawScanned,
) -> Code {
    // SAFETY: called as the ABI specifies, with a `Copying` as context.
    unsafe {
        let host = &*context.cast::<Copying<'_>>();
        let mut page = (*scanned).page;
        let inner = (&raw const host.invocation).cast_mut().cast();
        let code = (HOST.scan)(inner, ticket, table, range, entries, capacity, scanned);
        if code == OK {
            let entries = slice::from_raw_parts_mut(entries, (*scanned).count);
            host.copy(entries, &mut page, (*range).after);
            (*scanned).last = entries.last().map_or(RawSlice::EMPTY, |entry| entry.key);
        }
        (*scanned).page = page;
        code
    }
}

unsafe extern "C" fn enumerate_by_copy(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    cursor: RawSlice,
    entries: *mut RawEntry,
    capacity: usize,
    listed: *mut RawListed,
) -> Code {
    // SAFETY: called as the ABI specifies, with a `Copying` as context.
    unsafe {
        let host = &*context.cast::<Copying<'_>>();
        let mut page = (*listed).page;
        let inner = (&raw const host.invocation).cast_mut().cast();
        let code = (HOST.enumerate)(inner, ticket, table, cursor, entries, capacity, listed);
        if code == OK {
            host.copy(slice::from_raw_parts_mut(entries, (*listed).count), &mut page, RawSlice::EMPTY);
        }
        (*listed).page = page;
        code
    }
}

/// Reads a table twice at once, by a forward and a backward scan, and then by an enumeration.
async fn read_thrice(db: &Db<'_>, table: Table, objects: u32) -> Result<(), Error> {
    let (mut forward, mut backward) =
        (db.scan(table, KeyRange::all()), db.scan(table, KeyRange::all().reverse()));
    for number in 0..objects {
        let first = forward.next().await?.ok_or(Error::NotFound)?;
        let last = backward.next().await?.ok_or(Error::NotFound)?;
        assert_eq!((first.key, first.value), (&number.to_be_bytes()[..], &number.to_le_bytes()[..]));
        let number = objects - 1 - number;
        assert_eq!((last.key, last.value), (&number.to_be_bytes()[..], &number.to_le_bytes()[..]));
    }
    assert_eq!((forward.next().await, backward.next().await), (Ok(None), Ok(None)));
    let (mut page, mut next, mut met) = (EntryPage::new(), Some(Cursor::start()), Vec::new());
    while let Some(cursor) = next {
        next = db.enumerate(table, cursor, &mut page).await?;
        for entry in &page {
            let number = u32::from_be_bytes(entry.key.try_into().expect("four bytes"));
            assert_eq!(entry.value, number.to_le_bytes());
            met.push(number);
        }
    }
    met.sort_unstable();
    assert_eq!(met, (0..objects).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn a_host_may_use_the_memory_of_a_page_again() {
    let host = Host { scan: scan_by_copy, enumerate: enumerate_by_copy, ..HOST };
    for stalling in [false, true] {
        let db = MemoryDb::new();
        db.set_stalling(stalling);
        let table = db.ordered_table("t");
        (0..200_u32).for_each(|number| db.put(table, &number.to_be_bytes(), &number.to_le_bytes()));
        let state = db.state.borrow();
        let copying = Copying { invocation: Invocation::new(&state, false), pages: RefCell::default() };
        // SAFETY: the calls of `host` take a `Copying`, which outlives `drive` with the memory that it lends.
        let db = unsafe { Db::from_raw(&host, (&raw const copying).cast_mut().cast()) };
        assert_eq!(drive(read_thrice(&db, table, 200)), Ok(()));
        assert_eq!(copying.pages.borrow().len(), 3, "two scans and one page have memory");
    }
}

#[test]
fn floating_point_numbers_are_added_to() {
    let db = MemoryDb::new();
    let table = db.table("t");
    let run = async |db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>| {
        db.increment_float(args.table(), b"n", 1.5).await?;
        assert_eq!(db.increment_float(args.table(), b"n", f64::NAN).await, Err(Error::OutOfRange));
        db.put(args.table(), b"most", &f64::MIN.to_le_bytes()).await?;
        assert_eq!(db.increment_float(args.table(), b"most", f64::MIN).await, Err(Error::Overflow));
        reply.u64(db.increment_float(args.table(), b"n", -2.0).await?.to_bits())
    };
    assert_eq!(db.call(run, table, b"", b"").unwrap(), (-0.5f64).to_le_bytes());
    assert_eq!(db.call_read(run, table, b"", b""), Err(Error::ReadOnly));
}

/// Room for one frame.
#[repr(align(64))]
struct Room(UnsafeCell<[u8; 1024]>);

// SAFETY: one test uses it, for one frame.
unsafe impl Sync for Room {}

static ROOM: Room = Room(UnsafeCell::new([0; 1024]));

unsafe extern "C" fn allocate(bytes: usize, align: usize) -> *mut u8 {
    assert!(bytes <= 1024 && align <= 64);
    ROOM.0.get().cast()
}

unsafe extern "C" fn free(_: *mut u8, _: usize, _: usize) {}

unsafe extern "C" fn reallocate(_: *mut u8, _: usize, _: usize, _: usize) -> *mut u8 {
    core::ptr::null_mut()
}

unsafe extern "C" fn begin_panic() -> u32 {
    0
}

unsafe extern "C" fn abandon(_: u32, _: RawSlice) -> ! {
    unreachable!("nothing is abandoned here")
}

/// Reads, waits, and fails with what it read: borrows db, arguments and reply across polls.
async fn read_and_fail(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let value = db.get(args.table(), args.key()).await?.ok_or(Error::NotFound)?;
    reply.write(args.bytes())?;
    db.yield_now().await;
    reply.write(value)?;
    Err(Error::Application(reply.len() as u32))
}

/// The way of a host: a frame in the arena, one call of `run` per poll.
#[test]
fn an_invocation_resumes_where_it_waited() {
    let db = MemoryDb::new();
    let table = db.table("t");
    db.put(table, b"k", b"v");
    let state = db.state.borrow();
    let invocation = Invocation::new(&state, true);
    let mut buffer = [0u8; 16];
    let mut call = Call {
        host: &HOST,
        context: (&raw const invocation).cast_mut().cast(),
        key: RawSlice::of(b"k"),
        arguments: RawSlice::of(b"args"),
        reply: RawReply { address: buffer.as_mut_ptr(), bytes: 0, capacity: 16, highest: 0, asked: 0 },
        future: core::ptr::null_mut(),
        table: table.id(),
        reserved: 0,
    };
    let services = Services { allocate, free, reallocate, begin_panic, abandon };
    let call = &raw mut call;
    // SAFETY: call, buffer and invocation outlive the runs, which all start the same function, and none
    // follows after it was ready.
    let codes = [(); 2]
        .map(|()| unsafe { entry::run(&services, call, |db, args, reply| read_and_fail(db, args, reply)) });
    assert_eq!(codes, [PENDING, Error::Application(5).code()]);
    // SAFETY: the function is over; the call is this test's own.
    let reply = unsafe { (*call).reply.bytes };
    assert_eq!(&buffer[..reply], b"argsv");
}
