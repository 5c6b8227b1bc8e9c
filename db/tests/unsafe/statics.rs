//! Words that outlive an invocation, as no checked source can have them.
#![no_std]
use core::sync::atomic::{AtomicU64, Ordering};
use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! { write keep, read kept_read }

static mut DATA: u64 = 5;
static BSS: AtomicU64 = AtomicU64::new(0);

async fn keep(_: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&args.bytes()[..8]);
    let number = u64::from_le_bytes(bytes);
    unsafe { (&raw mut DATA).write_volatile(number) };
    BSS.store(number, Ordering::Relaxed);
    Ok(())
}

async fn kept_read(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    reply.u64(unsafe { (&raw const DATA).read_volatile() })?;
    reply.u64(BSS.load(Ordering::Relaxed))
}
