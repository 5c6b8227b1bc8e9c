//! The way of a module's trap, from the fault handler to Wasmtime's trap handler.
//!
//! Wasmtime compiles a trap to an instruction that faults: an access outside the linear memory, a division, `ud2`. Its
//! handler looks the instruction up and jumps to where the module was entered. It must not do that inside our signal
//! handler, which would never return: the signal mask and the alternate stack would stay as they are there. So our
//! handler edits the interrupted context ([`continue_in_trap`]), and after its return the interrupted stack calls
//! Wasmtime's handler as ordinary code.
//!
//! What Wasmtime does not know as a trap ends the process: an access of a module outside its memory, or a fault at an
//! instruction that cannot fault, shows that the compiler's code is wrong, so other accesses may have hit anything.

use std::arch::naked_asm;
use std::io::Write;
use std::mem;
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Release};

use super::region::PAGE_BYTES;
use super::running;

/// Wasmtime's handler: instruction, frame pointer, whether an access faulted, its address. Returns only if it knows no
/// trap there.
pub type TrapHandler = extern "C" fn(usize, usize, bool, usize);

/// The handler, as an address; 0 before Wasmtime sets it.
static HANDLER: AtomicUsize = AtomicUsize::new(0);

/// Free bytes of stack that a trap needs: Wasmtime's handler looks up the instruction and allocates a record.
pub const TRAP_STACK_BYTES: usize = 8 << 10;

/// Bytes below the stack pointer that a function may use without moving it.
const RED_ZONE_BYTES: usize = 128;

/// The direction flag, which is clear whenever a C function is called.
const DIRECTION_FLAG: i64 = 1 << 10;

/// Sets Wasmtime's handler, the same one each time.
pub fn set_handler(handler: TrapHandler) {
    HANDLER.store(handler as usize, Release);
}

/// Makes the interrupted code of a module go on in Wasmtime's handler. `address` is that of a faulting access.
pub fn continue_in_trap(registers: &mut [libc::greg_t], address: Option<usize>) {
    let below_red_zone = registers[libc::REG_RSP as usize] as usize - RED_ZONE_BYTES;
    registers[libc::REG_RDI as usize] = registers[libc::REG_RIP as usize];
    registers[libc::REG_RSI as usize] = registers[libc::REG_RBP as usize];
    registers[libc::REG_RDX as usize] = i64::from(address.is_some());
    registers[libc::REG_RCX as usize] = address.unwrap_or(0) as i64;
    registers[libc::REG_RSP as usize] = (below_red_zone & !15) as i64;
    registers[libc::REG_RIP as usize] = trampoline as *const () as i64;
    registers[libc::REG_EFL as usize] &= !DIRECTION_FLAG;
}

/// Calls [`trapped`] with the registers as they are and the stack pointer at a multiple of 16.
///
/// # Safety
/// To be continued in by [`continue_in_trap`] alone.
#[unsafe(naked)]
unsafe extern "C" fn trampoline() {
    naked_asm!("call {trapped}", "ud2", trapped = sym trapped)
}

/// Runs on the interrupted stack, below the module's frames. Owns nothing: Wasmtime's handler jumps over its frame.
extern "C" fn trapped(instruction: usize, frame: usize, is_access: bool, address: usize) -> ! {
    let is_its_own = running::with(|running| {
        running.set_trap_address(if is_access { address } else { 0 });
        // A check that fails on purpose reads the first page, where no memory can be.
        !is_access
            || address < PAGE_BYTES
            || running.module().is_some_and(|module| (module.memory.0..module.memory.1).contains(&address))
    });
    let handler = HANDLER.load(Acquire);
    if is_its_own && handler != 0 {
        // SAFETY: the address of a function of this type, set by `set_handler`.
        let handler = unsafe { mem::transmute::<usize, TrapHandler>(handler) };
        handler(instruction, frame, is_access, address);
    }
    // The process ends: if this cannot be written, so be it.
    let _ = writeln!(
        std::io::stderr(),
        "a module faulted where it cannot: instruction {instruction:#x}, address {address:#x}; its code may be wrong"
    );
    process::abort()
}
