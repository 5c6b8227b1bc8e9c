//! A host of the smallest kind: one invocation at a time, each on a thread of its own.
//!
//! An invocation that is abandoned parks its thread for good; the text comes over a channel.

use std::alloc::Layout;
use std::cell::Cell;
use std::cell::RefCell;
use std::ffi::CString;
use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::c_void;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::border::ABI_VERSION;
use super::border::Artefact;
use super::border::CURSOR_BYTES_MAX;
use super::border::Call;
use super::border::Code;
use super::border::Function;
use super::border::Host;
use super::border::OK;
use super::border::PENDING;
use super::border::RawCondition;
use super::border::RawEntry;
use super::border::RawListed;
use super::border::RawRange;
use super::border::RawRecord;
use super::border::RawReply;
use super::border::RawScanned;
use super::border::RawSlice;
use super::border::Services;

/// Memory of an invocation.
const ARENA_BYTES: usize = 1 << 20;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// How an invocation ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// It returned; how often it was pending, its reply, and what it did to the host.
    Returned { code: Code, pending: u32, reply: Vec<u8>, done: Vec<String> },
    /// It was abandoned.
    Abandoned { kind: u32, text: String },
}

thread_local! {
    static ARENA_USED: Cell<usize> = const { Cell::new(0) };
    static PANICS: Cell<u32> = const { Cell::new(0) };
    static OUT: RefCell<Option<mpsc::Sender<End>>> = const { RefCell::new(None) };
}

/// A loaded artefact; never unloaded.
pub struct Loaded(&'static Artefact);

impl Loaded {
    /// Loads an artefact and hands it the services.
    pub fn open(path: &Path, sdk_hash: [u8; 32]) -> Loaded {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the builder made the library; it stays loaded, and exports an Artefact.
        let artefact = unsafe {
            let library = dlopen(path.as_ptr(), 2);
            assert!(!library.is_null(), "the artefact loads");
            let symbol = dlsym(library, c"SPLINTER_ARTEFACT".as_ptr());
            assert!(!symbol.is_null(), "the artefact exports its description");
            &*symbol.cast::<Artefact>()
        };
        assert_eq!((artefact.abi_version, artefact.sdk_hash), (ABI_VERSION, sdk_hash));
        // SAFETY: called once per library, before any function; two opens store the same services.
        unsafe { (artefact.open)(Services { allocate, free, reallocate, begin_panic, abandon }) };
        Loaded(artefact)
    }

    /// Names and modes, in order.
    pub fn functions(&self) -> Vec<(&'static str, u32)> {
        self.table().iter().map(|function| (text(function.name), function.mode)).collect()
    }

    /// Runs a function to its end; the host answers "pending" `stalls` times before each answer.
    pub fn invoke(&self, name: &str, arguments: &[u8], stalls: u64) -> End {
        let function = self.table().iter().find(|function| text(function.name) == name).expect(name);
        let (run, arguments) = (function.run, arguments.to_vec());
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            OUT.set(Some(sender.clone()));
            let end = run_to_end(run, &arguments, stalls);
            sender.send(end).expect("the test waits");
        });
        receiver.recv_timeout(Duration::from_secs(60)).expect("an end")
    }

    /// Runs a function on the caller's own stack.
    pub fn invoke_here(&self, name: &str, arguments: &[u8]) -> End {
        let function = self.table().iter().find(|function| text(function.name) == name).expect(name);
        run_to_end(function.run, arguments, 0)
    }

    fn table(&self) -> &'static [Function] {
        // SAFETY: the artefact's own description of its constant table.
        unsafe { std::slice::from_raw_parts(self.0.functions, self.0.function_count as usize) }
    }
}

/// The state behind the host calls.
#[derive(Default)]
struct Store {
    stalls: u64,
    done: Vec<String>,
}

fn run_to_end(run: unsafe extern "C" fn(*mut Call) -> Code, arguments: &[u8], stalls: u64) -> End {
    let mut store = Store { stalls, done: Vec::new() };
    let mut reply = vec![0u8; 4096];
    let context = (&raw mut store).cast::<c_void>();
    let mut call = Call {
        host: &HOST,
        context,
        key: slice(b"key"),
        arguments: slice(arguments),
        reply: RawReply { address: reply.as_mut_ptr(), bytes: 0, capacity: 4096, highest: 0, asked: 0 },
        future: std::ptr::null_mut(),
        table: 7,
        reserved: 0,
    };
    let mut pending = 0;
    loop {
        // SAFETY: call, store and reply live until the loop ends, and it ends when the function has.
        let code = unsafe { run(&raw mut call) };
        if code != PENDING {
            reply.truncate(call.reply.bytes);
            // SAFETY: the host calls are over; the store is this function's own.
            let done = unsafe { std::mem::take(&mut (*context.cast::<Store>()).done) };
            return End::Returned { code, pending, reply, done };
        }
        pending += 1;
    }
}

static HOST: Host =
    Host { get, get_many, scan, enumerate, put, delete, increment, increment_float, table, log, now_ms };

fn slice(bytes: &[u8]) -> RawSlice {
    RawSlice { address: bytes.as_ptr(), bytes: bytes.len() }
}

fn bytes<'a>(slice: RawSlice) -> &'a [u8] {
    // SAFETY: the border's promise: readable over the call; the tests copy at once.
    unsafe { std::slice::from_raw_parts(slice.address, slice.bytes) }
}

fn text<'a>(slice: RawSlice) -> &'a str {
    std::str::from_utf8(bytes(slice)).expect("UTF-8")
}

/// Notes a host call and answers it, after as many stalls as wanted.
unsafe fn answer(context: *mut c_void, ticket: *mut u64, what: String) -> Code {
    // SAFETY: the context is the store of this invocation, used by one call at a time.
    let (store, ticket) = unsafe { (&mut *context.cast::<Store>(), &mut *ticket) };
    if *ticket < store.stalls {
        *ticket += 1;
        return PENDING;
    }
    store.done.push(what);
    OK
}

/// The record of a key: "key" has a value, a number has itself, others are absent.
fn record(key: &[u8]) -> RawRecord {
    let value: &'static [u8] = match key {
        b"key" => b"the value",
        [b'0'..=b'9'] => b"1",
        [b'0'..=b'9', b'0'..=b'9'] => b"22",
        _ => return RawRecord { value: slice(b""), version: 0 },
    };
    RawRecord { value: slice(value), version: 3 }
}

unsafe extern "C" fn get(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    key: RawSlice,
    out: *mut RawRecord,
) -> Code {
    // SAFETY: the border's promises of a host call.
    unsafe {
        out.write(record(bytes(key)));
        answer(context, ticket, format!("get {table} {}", text(key)))
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
    // SAFETY: the border's promises of a host call.
    unsafe {
        for index in 0..count {
            records.add(index).write(record(bytes(*keys.add(index))));
        }
        answer(context, ticket, format!("get_many {table} {count}"))
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
    // SAFETY: the border's promises of a host call.
    unsafe {
        let (range, key) = (&*range, slice(b"key"));
        entries.write(RawEntry { key, record: record(b"key") });
        scanned.write(RawScanned { count: 1, last: key, ended: 1, page: slice(b"") });
        answer(context, ticket, format!("scan {table} {} {} {capacity}", text(range.prefix), range.flags))
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
    // SAFETY: the border's promises of a host call.
    unsafe {
        entries.write(RawEntry { key: slice(b"key"), record: record(b"key") });
        let (cursor_bytes, next) = (3 - cursor.bytes.min(3), [b'c'; CURSOR_BYTES_MAX]);
        listed.write(RawListed { count: 1, cursor_bytes, cursor: next, page: slice(b"") });
        answer(context, ticket, format!("enumerate {table} {:?} {capacity}", text(cursor)))
    }
}

unsafe extern "C" fn put(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    key: RawSlice,
    value: RawSlice,
    condition: RawCondition,
    _ttl_ms: u64,
) -> Code {
    let what = format!("put {table} {} {} {}", text(key), text(value), condition.kind);
    // SAFETY: the border's promises of a host call.
    unsafe { answer(context, ticket, what) }
}

unsafe extern "C" fn delete(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    key: RawSlice,
    _: RawCondition,
) -> Code {
    // SAFETY: the border's promises of a host call.
    unsafe { answer(context, ticket, format!("delete {table} {}", text(key))) }
}

unsafe extern "C" fn increment(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    key: RawSlice,
    delta: i64,
    value: *mut i64,
) -> Code {
    // SAFETY: the border's promises of a host call.
    unsafe {
        value.write(delta * 2);
        answer(context, ticket, format!("increment {table} {} {delta}", text(key)))
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
    // SAFETY: the border's promises of a host call.
    unsafe {
        value.write(delta * 2.0);
        answer(context, ticket, format!("increment_float {table} {} {delta}", text(key)))
    }
}

unsafe extern "C" fn table(context: *mut c_void, ticket: *mut u64, name: RawSlice, id: *mut u32) -> Code {
    // SAFETY: the border's promises of a host call.
    unsafe {
        id.write(1);
        answer(context, ticket, format!("table {}", text(name)))
    }
}

unsafe extern "C" fn log(context: *mut c_void, level: u32, line: RawSlice) {
    // SAFETY: the context is the store of this invocation.
    unsafe { (*context.cast::<Store>()).done.push(format!("log {level} {}", text(line))) };
}

unsafe extern "C" fn now_ms(_: *mut c_void) -> u64 {
    1
}

unsafe extern "C" fn allocate(bytes: usize, align: usize) -> *mut u8 {
    let used = ARENA_USED.get().saturating_add(bytes);
    if used > ARENA_BYTES {
        return std::ptr::null_mut();
    }
    ARENA_USED.set(used);
    // SAFETY: the artefact asks for good layouts of at least one byte or a frame; nothing is given back.
    unsafe { std::alloc::alloc(Layout::from_size_align(bytes.max(1), align).expect("a layout")) }
}

unsafe extern "C" fn free(_: *mut u8, _: usize, _: usize) {}

unsafe extern "C" fn reallocate(address: *mut u8, bytes: usize, align: usize, new_bytes: usize) -> *mut u8 {
    // SAFETY: as for `allocate`; the old memory has `bytes` bytes.
    unsafe {
        let moved = allocate(new_bytes, align);
        if !moved.is_null() {
            std::ptr::copy_nonoverlapping(address, moved, bytes.min(new_bytes));
        }
        moved
    }
}

unsafe extern "C" fn begin_panic() -> u32 {
    PANICS.replace(PANICS.get() + 1)
}

unsafe extern "C" fn abandon(kind: u32, why: RawSlice) -> ! {
    let end = End::Abandoned { kind, text: text(why).to_string() };
    OUT.with_borrow(|out| out.as_ref().map(|out| out.send(end).is_ok()));
    loop {
        thread::park();
    }
}
