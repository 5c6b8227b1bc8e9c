//! Glue of an artefact: connects the host's C calls with the tenant's safe functions.
//! Compiled with the SDK and the tenant's crate into one shared object. Written by Splinter's builder.
#![no_std]

extern crate alloc;

use core::cell::UnsafeCell;
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

/// The host's services, written once by `open`.
struct Slot(UnsafeCell<MaybeUninit<Services>>);

// SAFETY: written only by `open`, which the host calls once and before any function; only read afterwards.
unsafe impl Sync for Slot {}

static SERVICES: Slot = Slot(UnsafeCell::new(MaybeUninit::uninit()));

/// Returns the functions by which the rest of the glue reaches the invocation's arena, and leaves it.
#[inline]
fn services() -> &'static Services {
    // SAFETY: the host opened the artefact before it ran anything, so the slot is written and constant.
    unsafe { (*SERVICES.0.get()).assume_init_ref() }
}

unsafe extern "C" fn open(services: Services) {
    // SAFETY: the host calls this once, before any function, so the slot is not read meanwhile.
    unsafe { (*SERVICES.0.get()).write(services) };
}

/// Named by the unwinding tables of `core`; nothing unwinds here.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// Named by the landing pads of `alloc`, which was compiled to unwind.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    runtime::leave(runtime::PANIC, b"nothing unwinds in an artefact")
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
