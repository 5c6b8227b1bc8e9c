//! The host calls of a function that runs in the client: their table, and the start of a function.
//!
//! The context of every host call is the [`Task`] that [`start`] gave to the function's `Db`. The future owns a share
//! of the task, so the task outlives it. Lent memory lies in the task's arena, which is cleared only while no future of
//! the task exists.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use sandstorm::abi::{
    CURSOR_BYTES_MAX, Code, Host, OK, PENDING, RANGE_HAS_AFTER, RANGE_HAS_TO, RANGE_REVERSE, RawCondition,
    RawEntry, RawListed, RawRange, RawRecord, RawScanned, RawSlice, TTL_FOREVER,
};
use sandstorm::{Args, Condition, Db, Level, Reply};
use wire::limits::KEY_BYTES_MAX;

use super::Run;
use super::border::NOTHING;
use super::task::{PageOf, Stop, Task};

static HOST: Host =
    Host { get, get_many, scan, enumerate, put, delete, increment, increment_float, table, log, now_ms };

/// Starts a function on a task that has begun an invocation.
pub(super) fn start<F>(task: Rc<Task>, function: F) -> Run
where
    F: AsyncFn(&Db<'_>, Args<'_>, &mut Reply<'_>) -> Result<(), sandstorm::Error> + 'static,
{
    Box::pin(async move {
        let call = task.border.call();
        // SAFETY: the host calls take a Task as context; this future owns `task`, so it outlives every use of db, args
        // and reply. Key, arguments and records lie in the task's arena, which is cleared only while no future exists.
        // The reply's buffer belongs to the task, and only this future writes to it.
        let (db, args, mut reply) = unsafe {
            (*call).host = &raw const HOST;
            let context = Rc::as_ptr(&task).cast_mut().cast::<c_void>();
            let reply = NonNull::new_unchecked(&raw mut (*call).reply);
            (Db::from_raw(&HOST, context), Args::of(call), Reply::from_raw(reply))
        };
        function(&db, args, &mut reply).await
    })
}

/// Makes a host call on the task behind `context`.
///
/// # Safety
/// `context` is a live [`Task`], `ticket` is valid for the call.
unsafe fn answer(
    context: *mut c_void,
    ticket: *mut u64,
    operation: impl FnOnce(&Task, &mut u64) -> Result<(), Stop>,
) -> Code {
    // SAFETY: by contract; a task is only ever shared.
    let (task, ticket) = unsafe { (&*context.cast::<Task>(), &mut *ticket) };
    match operation(task, ticket) {
        Ok(()) => OK,
        Err(Stop::Pending) => PENDING,
        Err(Stop::Failed(error)) => error.code(),
    }
}

unsafe extern "C" fn get(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    key: RawSlice,
    record: *mut RawRecord,
) -> Code {
    // SAFETY: called as the ABI specifies, with the context that `start` gave.
    unsafe {
        answer(context, ticket, |task, ticket| {
            let keys = std::iter::once(key.as_slice());
            task.read_many(ticket, table, keys, |_, found| record.write(found))
        })
    }
}

unsafe extern "C" fn get_many(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    keys: *const RawSlice,
    count: usize,
    records: *mut RawRecord,
) -> Code {
    // SAFETY: called as the ABI specifies, with the context that `start` gave; `keys` and `records` are arrays of
    // `count`.
    unsafe {
        answer(context, ticket, |task, ticket| {
            let keys = std::slice::from_raw_parts(keys, count).iter().map(|key| key.as_slice());
            task.read_many(ticket, table, keys, |index, found| records.add(index).write(found))
        })
    }
}

unsafe extern "C" fn scan(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    range: *const RawRange,
    entries: *mut RawEntry,
    capacity: usize,
    scanned: *mut RawScanned,
) -> Code {
    // SAFETY: called as the ABI specifies, with the context that `start` gave; there is room for `capacity` entries.
    unsafe {
        answer(context, ticket, |task, ticket| {
            scanned.write(scan_page(task, ticket, table, &*range, (entries, capacity))?);
            Ok(())
        })
    }
}

unsafe extern "C" fn enumerate(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    cursor: RawSlice,
    entries: *mut RawEntry,
    capacity: usize,
    listed: *mut RawListed,
) -> Code {
    // SAFETY: called as the ABI specifies, with the context that `start` gave; there is room for `capacity` entries.
    unsafe {
        answer(context, ticket, |task, ticket| {
            listed.write(list_page(task, ticket, table, cursor.as_slice(), (entries, capacity))?);
            Ok(())
        })
    }
}

/// Reads a page of a range.
///
/// # Safety
/// The bounds are readable, and there is room for so many entries.
pub(super) unsafe fn scan_page(
    task: &Task,
    ticket: &mut u64,
    table: u32,
    range: &RawRange,
    (entries, capacity): (*mut RawEntry, usize),
) -> Result<RawScanned, Stop> {
    let mut scanned = RawScanned { count: 0, last: NOTHING, ended: 0, page: NOTHING };
    // Before they are copied: a module may pass all of its memory.
    if [range.from, range.to, range.prefix, range.after].iter().any(|bound| bound.bytes > KEY_BYTES_MAX) {
        return Err(sandstorm::Error::KeyTooLarge.into());
    }
    // SAFETY: as the caller promises.
    let range = unsafe { page_of(range) };
    task.read_page(ticket, table, range, capacity, |met, cursor| {
        // SAFETY: no more than `capacity`.
        met.iter().enumerate().for_each(|(index, entry)| unsafe { entries.add(index).write(*entry) });
        // The page continues after its last object: a page without objects is never returned before the end.
        let last = met.last().map_or(NOTHING, |entry| entry.key);
        let ended = usize::from(cursor.is_none());
        scanned = RawScanned { count: met.len(), last, ended, page: NOTHING };
    })?;
    Ok(scanned)
}

/// Reads a page of a table.
///
/// # Safety
/// There is room for so many entries.
pub(super) unsafe fn list_page(
    task: &Task,
    ticket: &mut u64,
    table: u32,
    cursor: &[u8],
    (entries, capacity): (*mut RawEntry, usize),
) -> Result<RawListed, Stop> {
    if cursor.len() > CURSOR_BYTES_MAX {
        return Err(sandstorm::Error::CursorInvalid.into());
    }
    let of = PageOf::Table { cursor: cursor.to_vec() };
    let mut listed = RawListed { count: 0, cursor_bytes: 0, cursor: [0; CURSOR_BYTES_MAX], page: NOTHING };
    task.read_page(ticket, table, of, capacity, |met, cursor| {
        // SAFETY: no more than `capacity`.
        met.iter().enumerate().for_each(|(index, entry)| unsafe { entries.add(index).write(*entry) });
        let next = cursor.filter(|cursor| cursor.len() <= CURSOR_BYTES_MAX).unwrap_or_default();
        listed.cursor[..next.len()].copy_from_slice(next);
        (listed.count, listed.cursor_bytes) = (met.len(), next.len());
    })?;
    Ok(listed)
}

unsafe extern "C" fn put(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    key: RawSlice,
    value: RawSlice,
    condition: RawCondition,
    ttl_ms: u64,
) -> Code {
    // SAFETY: called as the ABI specifies, with the context that `start` gave.
    unsafe {
        answer(context, ticket, |task, ticket| {
            let ttl_ms = (ttl_ms != TTL_FOREVER).then_some(ttl_ms);
            task.write(ticket, table, key.as_slice(), Some((value.as_slice(), ttl_ms)), known(condition)?)
        })
    }
}

unsafe extern "C" fn delete(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    key: RawSlice,
    condition: RawCondition,
) -> Code {
    // SAFETY: called as the ABI specifies, with the context that `start` gave.
    unsafe {
        answer(context, ticket, |task, ticket| {
            task.write(ticket, table, key.as_slice(), None, known(condition)?)
        })
    }
}

unsafe extern "C" fn increment(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    key: RawSlice,
    delta: i64,
    value: *mut i64,
) -> Code {
    // SAFETY: called as the ABI specifies, with the context that `start` gave.
    unsafe {
        answer(context, ticket, |task, ticket| {
            value.write(increment_by(task, ticket, table, key.as_slice(), delta)?);
            Ok(())
        })
    }
}

unsafe extern "C" fn increment_float(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    key: RawSlice,
    delta: f64,
    value: *mut f64,
) -> Code {
    // SAFETY: called as the ABI specifies, with the context that `start` gave.
    unsafe {
        answer(context, ticket, |task, ticket| {
            value.write(increment_float_by(task, ticket, table, key.as_slice(), delta)?);
            Ok(())
        })
    }
}

/// Adds to a number.
pub(super) fn increment_by(
    task: &Task,
    ticket: &mut u64,
    table: u32,
    key: &[u8],
    delta: i64,
) -> Result<i64, Stop> {
    let sum = |old| i64::from_le_bytes(old).checked_add(delta).map(i64::to_le_bytes);
    task.add(ticket, table, key, sum).map(i64::from_le_bytes)
}

/// Adds to a floating-point number.
pub(super) fn increment_float_by(
    task: &Task,
    ticket: &mut u64,
    table: u32,
    key: &[u8],
    delta: f64,
) -> Result<f64, Stop> {
    if !delta.is_finite() {
        return Err(sandstorm::Error::OutOfRange.into());
    }
    let sum = |old| Some(f64::from_le_bytes(old) + delta).filter(|sum| sum.is_finite());
    task.add(ticket, table, key, |old| sum(old).map(f64::to_le_bytes)).map(f64::from_le_bytes)
}

unsafe extern "C" fn table(context: *mut c_void, ticket: *mut u64, name: RawSlice, id: *mut u32) -> Code {
    // SAFETY: called as the ABI specifies, with the context that `start` gave.
    unsafe {
        answer(context, ticket, |task, ticket| {
            id.write(task.find_table(ticket, name.as_slice())?);
            Ok(())
        })
    }
}

unsafe extern "C" fn log(context: *mut c_void, level: u32, text: RawSlice) {
    // SAFETY: called as the ABI specifies, with the context that `start` gave.
    let (task, text) = unsafe { (&*context.cast::<Task>(), text.as_slice()) };
    task.log(level_of(level), text);
}

pub(super) fn level_of(level: u32) -> Level {
    match level {
        0 => Level::Error,
        1 => Level::Warning,
        2 => Level::Information,
        _ => Level::Debug,
    }
}

unsafe extern "C" fn now_ms(_: *mut c_void) -> u64 {
    wall_ms()
}

/// Returns milliseconds since the Unix epoch.
pub(super) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// Returns the page request for a range.
///
/// # Safety
/// The bounds are readable during the call.
unsafe fn page_of(raw: &RawRange) -> PageOf {
    let has = |flag: u32| raw.flags & flag != 0;
    // SAFETY: guaranteed by the caller.
    let [from, to, prefix, after] =
        [raw.from, raw.to, raw.prefix, raw.after].map(|slice| unsafe { slice.as_slice() }.to_vec());
    let (to, after) = (has(RANGE_HAS_TO).then_some(to), has(RANGE_HAS_AFTER).then_some(after));
    PageOf::range(from, to, prefix, after, has(RANGE_REVERSE))
}

fn known(condition: RawCondition) -> Result<Condition, sandstorm::Error> {
    Condition::from_raw(condition).ok_or(sandstorm::Error::BadArguments)
}
