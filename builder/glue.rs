//! Glue of an artefact: connects the host's C calls with the tenant's safe functions.
//! Compiled with the SDK and the tenant's crate into one shared object. Written by Splinter's builder.
#![no_std]

extern crate alloc;

use core::alloc::GlobalAlloc;
use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::fmt;
use core::future::Future;
use core::mem::MaybeUninit;

use sandstorm::Args;
use sandstorm::Db;
use sandstorm::Error;
use sandstorm::Reply;
use sandstorm::abi::ABI_VERSION;
use sandstorm::abi::Artefact;
use sandstorm::abi::Call;
use sandstorm::abi::Code;
use sandstorm::abi::Function;
use sandstorm::abi::RawSlice;
use sandstorm::abi::Services;

/// Bytes of a panic's text; the rest is cut.
const PANIC_BYTES_MAX: usize = 512;

/// The host's services, written once by `open`.
struct Slot(UnsafeCell<MaybeUninit<Services>>);

// SAFETY: written only by `open`, which the host calls once and before any function; only read afterwards.
unsafe impl Sync for Slot {}

static SERVICES: Slot = Slot(UnsafeCell::new(MaybeUninit::uninit()));

#[inline]
fn services() -> &'static Services {
    // SAFETY: the host opened the artefact before it ran anything, so the slot is written and constant.
    unsafe { (*SERVICES.0.get()).assume_init_ref() }
}

unsafe extern "C" fn open(services: Services) {
    // SAFETY: the host calls this once, before any function, so the slot is not read meanwhile.
    unsafe { (*SERVICES.0.get()).write(services) };
}

/// Leaves the invocation for good.
#[cold]
fn abandon(kind: u32, text: &[u8]) -> ! {
    // SAFETY: runs on the stack of an invocation, which the host leaves; the text is copied by then.
    unsafe { (services().abandon)(kind, RawSlice::of(text)) }
}

/// The allocator of the tenant's code: the arena of the running invocation.
struct Arena;

#[global_allocator]
static ARENA: Arena = Arena;

#[cold]
fn out_of_memory() -> ! {
    abandon(1, b"the invocation's memory is used up")
}

// SAFETY: the host's arena returns disjoint memory of the requested size and alignment; null is never returned
// to the caller, since the invocation ends instead.
unsafe impl GlobalAlloc for Arena {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: runs within an invocation.
        let address = unsafe { (services().allocate)(layout.size(), layout.align()) };
        if address.is_null() { out_of_memory() } else { address }
    }

    #[inline]
    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: the address came from `alloc` with this layout, by the caller's contract.
        unsafe { (services().free)(address, layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn realloc(&self, address: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the address came from `alloc` with this layout, by the caller's contract.
        let address = unsafe { (services().reallocate)(address, layout.size(), layout.align(), bytes) };
        if address.is_null() { out_of_memory() } else { address }
    }
}

/// A panic's text, cut if it is long.
struct Text {
    bytes: [u8; PANIC_BYTES_MAX],
    used: usize,
}

impl fmt::Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let room = PANIC_BYTES_MAX - self.used;
        let count = part.floor_char_boundary(room);
        self.bytes[self.used..self.used + count].copy_from_slice(&part.as_bytes()[..count]);
        self.used += count;
        if count == part.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[panic_handler]
fn panic(panic: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: runs within an invocation.
    if unsafe { (services().begin_panic)() } > 0 {
        abandon(0, b"a panic while the text of a panic was written");
    }
    let mut text = Text { bytes: [0; PANIC_BYTES_MAX], used: 0 };
    if let Some(place) = panic.location() {
        let _ = fmt::write(&mut text, format_args!("{}:{}: ", place.file(), place.line()));
    }
    let _ = fmt::write(&mut text, format_args!("{}", panic.message()));
    abandon(0, &text.bytes[..text.used])
}

/// Named by the unwinding tables of `core`; nothing unwinds here.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// Named by the landing pads of `alloc`, which was compiled to unwind.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    abandon(0, b"nothing unwinds in an artefact")
}

// Both symbols are private to this object.
core::arch::global_asm!(".hidden rust_eh_personality", ".hidden _Unwind_Resume");

/// One line of the function table.
const fn function(name: &'static str, mode: u32, run: unsafe extern "C" fn(*mut Call) -> Code) -> Function {
    let name = RawSlice { address: name.as_ptr(), bytes: name.len() };
    Function { name, mode, reserved: 0, run }
}

/// Defines the entry point of one function. `start` is generic over the invocation's lifetime, so that the
/// tenant's function must be too.
macro_rules! entry {
    ($name:ident, $run:ident) => {
        unsafe extern "C" fn $run(call: *mut Call) -> Code {
            fn start<'a>(
                db: &'a Db<'a>,
                args: Args<'a>,
                reply: &'a mut Reply<'a>,
            ) -> impl Future<Output = Result<(), Error>> + 'a {
                tenant::splinter_entry::$name(db, args, reply)
            }
            // SAFETY: the host passes a call that is valid until the invocation ends, does not run it again once it
            // was ready, and always uses the same entry point, hence one type of future.
            unsafe { sandstorm::entry::run(services(), call, |db, args, reply| start(db, args, reply)) }
        }
    };
}

/// The symbol that the host looks up.
#[unsafe(no_mangle)]
pub static SPLINTER_ARTEFACT: Artefact = Artefact {
    abi_version: ABI_VERSION,
    function_count: FUNCTION_COUNT as u32,
    sdk_hash: SDK_HASH,
    functions: (&raw const FUNCTIONS).cast::<Function>(),
    open,
};
