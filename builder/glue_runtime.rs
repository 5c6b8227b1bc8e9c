//! What the language asks of every glue, whatever its target: allocator and panic handler, over the host's services.
//! The builder puts it into the glue as the module `runtime`.

use core::alloc::GlobalAlloc;
use core::alloc::Layout;
use core::fmt;

use sandstorm::abi::RawSlice;

use super::services;

/// Bytes of a panic's text; the rest is cut.
const PANIC_BYTES_MAX: usize = 512;

/// Why an invocation is left.
pub(super) const PANIC: u32 = 0;
const OUT_OF_MEMORY: u32 = 1;

/// Leaves the invocation for good.
#[cold]
pub(super) fn leave(kind: u32, text: &[u8]) -> ! {
    // SAFETY: runs on the stack of an invocation, which the host leaves; the text is copied by then.
    unsafe { (services().abandon)(kind, RawSlice::of(text)) }
}

/// The allocator of the tenant's code: the arena of the running invocation.
struct Arena;

#[global_allocator]
static ARENA: Arena = Arena;

#[cold]
fn out_of_memory() -> ! {
    leave(OUT_OF_MEMORY, b"the invocation's memory is used up")
}

// SAFETY: the arena's memory is disjoint, of the requested size and alignment; null is never returned to the caller,
// since the invocation ends instead.
unsafe impl GlobalAlloc for Arena {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: runs within an invocation; the arguments are a layout's.
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
        leave(PANIC, b"a panic while the text of a panic was written");
    }
    let mut text = Text { bytes: [0; PANIC_BYTES_MAX], used: 0 };
    if let Some(place) = panic.location() {
        let _ = fmt::write(&mut text, format_args!("{}:{}: ", place.file(), place.line()));
    }
    let _ = fmt::write(&mut text, format_args!("{}", panic.message()));
    leave(PANIC, &text.bytes[..text.used])
}
