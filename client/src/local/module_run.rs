//! A run of a module's function: a future that polls the module on a stack of its own.
//!
//! The executor polls it like a function of the program. Its host calls go to the same [`Task`]; what they lend is copied into the
//! module's memory. A poll that lasts a slice is parked, so that others get their turn, and resumed with the next poll; one that has
//! used up the processor time of its invocation is given up.
//!
//! The stacks, the instances that wait for another invocation, and the handling of faults belong to the thread.

use std::cell::RefCell;
use std::ffi::c_void;
use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::ptr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use guest::border::{self, CallKind, Host, LentPart, ModuleInvocation};
use guest::cycles;
use guest::fault::Guarded;
use guest::preempt::Preemption;
use guest::running::{self, ParkedStack};
use guest::signal;
use guest::stack::{Cause, StackPool};
use guest::wasm::{Code as ModuleCode, Import};
use sandstorm::abi::{
    Call, Code, OK, PENDING, RawEntry, RawListed, RawRange, RawRecord, RawScanned, RawSlice, TTL_FOREVER,
};
use sandstorm::{Condition, Error};
use wire::Status;

use super::Run;
use super::border::Border;
use super::host::{increment_by, increment_float_by, level_of, list_page, scan_page, wall_ms};
use super::task::{Stop, Task, TaskLimits};
use crate::limits::{MODULE_INSTANCES_KEPT, MODULE_SLICE_US, PANIC_TEXT_BYTES_MAX};

/// Slices that one poll takes at most: its timer is set for two.
const SLICES_MAX: u64 = 3;

/// What modules may import.
pub(super) static IMPORTS: [Import; 12] = border::imports::<ModuleHost>();

/// What an invocation may use: the tenant's limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModuleLimits {
    pub(super) cpu_us: u64,
    pub(super) yields: u64,
    pub(super) arena_bytes: usize,
    pub(super) reads: usize,
    pub(super) read_bytes: usize,
    pub(super) writes: usize,
    pub(super) write_bytes: usize,
    pub(super) reply_bytes: usize,
}

impl ModuleLimits {
    /// Returns those of a task with so many bytes of input.
    pub(super) fn of_task(self, input_bytes: usize) -> TaskLimits {
        let own = TaskLimits::OWN;
        TaskLimits {
            reads: self.reads.min(own.reads),
            read_bytes: self.read_bytes.saturating_add(input_bytes).min(own.read_bytes),
            writes: self.writes.min(own.writes),
            write_bytes: self.write_bytes,
        }
    }
}

/// A loaded module as runs need it.
#[derive(Clone, Debug)]
pub(super) struct Runnable {
    pub(super) code: Arc<ModuleCode>,
    pub(super) limits: ModuleLimits,
    /// Whether an invocation leaves words only where it was lent memory, because its source was checked.
    pub(super) source_checked: bool,
}

/// What a thread needs to run modules.
pub(super) struct ModuleThread {
    stacks: RefCell<StackPool>,
    /// Instances that wait for another invocation, the latest last.
    idle: RefCell<Vec<(Arc<ModuleCode>, ModuleInvocation)>>,
    preemption: Preemption,
    /// Catches the overflow of stacks on this thread.
    _guarded: Guarded,
}

thread_local! {
    static THREAD: RefCell<Weak<ModuleThread>> = const { RefCell::new(Weak::new()) };
}

impl ModuleThread {
    /// Returns that of the calling thread.
    pub(super) fn of_this_thread() -> io::Result<Rc<ModuleThread>> {
        if let Some(known) = THREAD.with(|thread| thread.borrow().upgrade()) {
            return Ok(known);
        }
        signal::deliver();
        let made = Rc::new(ModuleThread {
            stacks: RefCell::new(StackPool::new()?),
            idle: RefCell::default(),
            preemption: Preemption::new(cycles::of_us(MODULE_SLICE_US))?,
            _guarded: Guarded::new()?,
        });
        THREAD.with(|thread| *thread.borrow_mut() = Rc::downgrade(&made));
        Ok(made)
    }

    fn take(&self, module: &Runnable) -> Result<ModuleInvocation, String> {
        let mut idle = self.idle.borrow_mut();
        if let Some(at) = idle.iter().rposition(|(code, _)| Arc::ptr_eq(code, &module.code)) {
            return Ok(idle.remove(at).1);
        }
        ModuleInvocation::new(&module.code, !module.source_checked).map_err(|error| error.to_string())
    }

    fn give(&self, module: &Runnable, invocation: ModuleInvocation) {
        let mut idle = self.idle.borrow_mut();
        if invocation.is_usable() {
            if idle.len() == MODULE_INSTANCES_KEPT {
                idle.remove(0);
            }
            idle.push((Arc::clone(&module.code), invocation));
        }
    }
}

/// The host of a run.
struct ModuleHost {
    task: Rc<Task>,
    lent: LentPart,
    /// The text of a panic.
    last_words: String,
    /// Cycles in host calls since the poll began.
    call_cycles: u64,
}

/// A run of a function.
struct ModuleRun {
    /// `None` before the first poll, and once it has ended.
    invocation: Option<ModuleInvocation>,
    /// A run that has used up a slice.
    parked: Option<ParkedStack>,
    /// Boxed, because the run has its address.
    host: Box<ModuleHost>,
    call: Call,
    export: usize,
    used_cycles: u64,
    yields: u64,
    module: Runnable,
    thread: Rc<ModuleThread>,
}

/// Starts a function of a module on a task that has begun an invocation.
pub(super) fn start(task: Rc<Task>, thread: &Rc<ModuleThread>, (module, export): (&Runnable, usize)) -> Run {
    task.note_module();
    // SAFETY: no future of the task exists, and the call is only read.
    let mut call = unsafe { ptr::read(task.border.call()) };
    call.reply.capacity = call.reply.capacity.min(module.limits.reply_bytes);
    Box::pin(ModuleRun {
        invocation: None,
        parked: None,
        host: Box::new(ModuleHost {
            task,
            lent: LentPart::default(),
            last_words: String::new(),
            call_cycles: 0,
        }),
        call,
        export,
        used_cycles: 0,
        yields: 0,
        module: module.clone(),
        thread: Rc::clone(thread),
    })
}

impl Future for ModuleRun {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let run = self.get_mut();
        if let Err(why) = run.begin() {
            return Poll::Ready(Err(run.end(Status::Unavailable, why)));
        }
        match run.poll_once() {
            None => Poll::Pending,
            Some(Ok(PENDING)) => match run.note_yield() {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            },
            Some(Ok(code)) => Poll::Ready(run.returned(code)),
            Some(Err(cause)) => Poll::Ready(Err(run.end_of(cause))),
        }
    }
}

impl ModuleRun {
    /// Gives the run its instance.
    fn begin(&mut self) -> Result<(), String> {
        if self.invocation.is_some() {
            return Ok(());
        }
        let mut invocation = self.thread.take(&self.module)?;
        // SAFETY: key and arguments lie in the arena of the task.
        self.host.lent = unsafe { invocation.begin(&mut self.call, self.module.limits.arena_bytes) };
        self.invocation = Some(invocation);
        Ok(())
    }

    /// Runs the function until it ends, waits or has used up a slice: then it returns nothing.
    fn poll_once(&mut self) -> Option<Result<Code, Cause>> {
        let Some(invocation) = &mut self.invocation else { return Some(Err(Cause::Abort)) };
        let ModuleThread { stacks, preemption, .. } = &*self.thread;
        let limit = cycles::of_us(self.module.limits.cpu_us);
        let slice = preemption.slice().min(limit.saturating_sub(self.used_cycles).max(1));
        self.host.call_cycles = 0;
        let context = ptr::from_mut(&mut *self.host).cast::<c_void>();
        let parked = match self.parked.take() {
            Some(parked) => Ok(parked),
            None => Err(match stacks.borrow_mut().take() {
                Ok(stack) => stack,
                Err(_) => return Some(Err(Cause::OutOfMemory)),
            }),
        };
        let begun = cycles::now();
        preemption.begin(begun, true);
        preemption.watch(begun, 1);
        let (stack, outcome) = match parked {
            Ok(parked) => {
                // SAFETY: parked by this run on this thread, with the same context, and resumed once. The thread is guarded.
                let outcome = unsafe { running::resume(&parked, ptr::null_mut(), context, begun + slice) };
                (parked.into_stack(), outcome)
            }
            Err(stack) => {
                let entry = invocation.entry(self.export);
                // SAFETY: the entry is the instance's latest one, which this run alone uses and abandons if it is parked and never
                // resumed; the context is the host that the imports expect. The thread is guarded.
                let outcome =
                    unsafe { running::run_module(&stack, ptr::null_mut(), context, begun + slice, entry) };
                (stack, outcome)
            }
        };
        let ended = cycles::now();
        preemption.rest(ended);
        // A poll that seems to have lasted longer had no core for a while.
        let used = ended.wrapping_sub(begun).min(SLICES_MAX * preemption.slice());
        self.used_cycles += used;
        let computed = Duration::from_nanos(cycles::to_ns(used.saturating_sub(self.host.call_cycles)));
        self.host.task.note_computed(computed, invocation.arena_asked_bytes());
        if !outcome.is_parked() {
            stacks.borrow_mut().give(stack);
            let polled = invocation.polled(outcome, &mut self.call);
            return Some(match polled {
                Ok(PENDING) if self.used_cycles >= limit => Err(self.over_time()),
                polled => polled,
            });
        }
        if self.used_cycles >= limit {
            invocation.abandon();
            stacks.borrow_mut().give(stack);
            return Some(Err(self.over_time()));
        }
        self.parked = Some(ParkedStack::new(stack, outcome));
        None
    }

    /// Notes which limit the run has reached.
    fn over_time(&mut self) -> Cause {
        self.host.last_words = reached("invocation_cpu_us", self.module.limits.cpu_us);
        Cause::Abort
    }

    /// Ends the run of a function that has returned this code.
    fn returned(&self, code: Code) -> Result<(), Error> {
        let reply = RawSlice { address: self.call.reply.address, bytes: self.call.reply.bytes };
        // SAFETY: within the instance's memory, whose module does not run.
        let reply = unsafe { reply.as_slice() };
        if code != OK {
            return Err(self.host.task.end_with(Error::from_code(code), reply));
        }
        self.host.task.border.set_reply(reply);
        Ok(())
    }

    /// Counts a poll that ended without a result and waits for nothing.
    fn note_yield(&mut self) -> Result<(), Error> {
        if self.host.task.waiting() > 0 {
            return Ok(());
        }
        self.yields += 1;
        if self.yields <= self.module.limits.yields {
            return Ok(());
        }
        Err(self.end(Status::ExtensionKilled, reached("invocation_yields", self.module.limits.yields)))
    }

    fn end_of(&mut self, cause: Cause) -> Error {
        let words = std::mem::take(&mut self.host.last_words);
        let is_over_time = self.used_cycles >= cycles::of_us(self.module.limits.cpu_us);
        match cause {
            Cause::Abort if is_over_time => self.end(Status::ExtensionKilled, words),
            Cause::Panic | Cause::Abort | Cause::WrongCode => self.end(Status::ExtensionPanicked, words),
            Cause::OutOfMemory => self.end(Status::ExtensionOutOfMemory, words),
            Cause::StackOverflow => self.end(Status::ExtensionStackOverflow, words),
        }
    }

    fn end(&self, status: Status, text: String) -> Error {
        self.host.task.end(crate::Error::Refused { status, text })
    }
}

impl Drop for ModuleRun {
    fn drop(&mut self) {
        let Some(mut invocation) = self.invocation.take() else { return };
        if let Some(parked) = self.parked.take() {
            invocation.abandon();
            self.thread.stacks.borrow_mut().give(parked.into_stack());
        }
        // One that would have to be made anew for the next invocation is made when there is one: also because this may be the end of
        // the thread, where there is nothing left to make it with.
        if self.module.source_checked && !invocation.is_spent() {
            invocation.reset(&self.call, self.host.lent);
            self.thread.give(&self.module, invocation);
        }
    }
}

/// Returns the text that names a limit, as a server's begins.
fn reached(limit: &str, value: u64) -> String {
    format!("the limit {limit} = {value} was reached")
}

/// Returns the code of a host call that has no result now.
fn code_of(stop: Stop) -> Code {
    match stop {
        Stop::Pending => PENDING,
        Stop::Failed(error) => error.code(),
    }
}

/// Lent bytes lie in the arena of the task, which is cleared only while no run exists.
impl Host for ModuleHost {
    const HAS_TICKETS: bool = true;

    fn is_observed(&self) -> bool {
        true
    }

    fn note_call(&mut self, _kind: CallKind, cycles: u64) {
        self.call_cycles += cycles;
    }

    fn lent(&mut self) -> &mut LentPart {
        &mut self.lent
    }

    fn lent_too_much(&mut self, _bytes: usize) -> Error {
        Error::LimitExceeded
    }

    fn get(
        &mut self,
        ticket: &mut u64,
        table: u32,
        key: &[u8],
        found: &mut MaybeUninit<RawRecord>,
    ) -> Result<(), Code> {
        let keys = std::iter::once(key);
        self.task.read_many(ticket, table, keys, |_, record| _ = found.write(record)).map_err(code_of)
    }

    unsafe fn get_many(
        &mut self,
        ticket: &mut u64,
        table: u32,
        keys: &[RawSlice],
        found: *mut RawRecord,
    ) -> Result<(), Code> {
        // SAFETY: readable, as the caller promises.
        let keys = keys.iter().map(|key| unsafe { key.as_slice() });
        // SAFETY: there is room for a record of each key.
        let put = |index, record| unsafe { found.add(index).write(record) };
        self.task.read_many(ticket, table, keys, put).map_err(code_of)
    }

    unsafe fn scan(
        &mut self,
        ticket: &mut u64,
        table: u32,
        range: &RawRange,
        entries: (*mut RawEntry, usize),
    ) -> Result<RawScanned, Code> {
        // SAFETY: as the caller promises.
        unsafe { scan_page(&self.task, ticket, table, range, entries) }.map_err(code_of)
    }

    unsafe fn enumerate(
        &mut self,
        ticket: &mut u64,
        table: u32,
        cursor: &[u8],
        entries: (*mut RawEntry, usize),
    ) -> Result<RawListed, Code> {
        // SAFETY: as the caller promises.
        unsafe { list_page(&self.task, ticket, table, cursor, entries) }.map_err(code_of)
    }

    fn write(
        &mut self,
        ticket: &mut u64,
        table: u32,
        key: &[u8],
        value: Option<(&[u8], u64)>,
        condition: Condition,
    ) -> Result<(), Code> {
        let value = value.map(|(value, ttl_ms)| (value, (ttl_ms != TTL_FOREVER).then_some(ttl_ms)));
        self.task.write(ticket, table, key, value, condition).map_err(code_of)
    }

    fn increment(&mut self, ticket: &mut u64, table: u32, key: &[u8], delta: i64) -> Result<i64, Code> {
        increment_by(&self.task, ticket, table, key, delta).map_err(code_of)
    }

    fn increment_float(&mut self, ticket: &mut u64, table: u32, key: &[u8], delta: f64) -> Result<f64, Code> {
        increment_float_by(&self.task, ticket, table, key, delta).map_err(code_of)
    }

    fn table(&mut self, ticket: &mut u64, name: &[u8]) -> Result<u32, Code> {
        self.task.find_table(ticket, name).map_err(code_of)
    }

    fn log(&mut self, level: u32, text: &[u8]) {
        self.task.log(level_of(level), text);
    }

    fn now_ms(&self) -> u64 {
        wall_ms()
    }

    fn keep_last_words(&mut self, text: RawSlice) {
        let text = Border::bytes(text);
        self.last_words = String::from_utf8_lossy(&text[..text.len().min(PANIC_TEXT_BYTES_MAX)]).into_owned();
    }
}
