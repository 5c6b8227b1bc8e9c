//! The entry point that turns the host's call into the author's function.
//!
//! Used by the glue that the builder generates around an extension, and by a host that links a function statically. Not
//! for authors: every function is unsafe, so their crates cannot call it.

use core::future::Future;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::Context;
use core::task::Poll;
use core::task::Waker;

use crate::Args;
use crate::Db;
use crate::Error;
use crate::Reply;
use crate::abi::Call;
use crate::abi::Code;
use crate::abi::OK;
use crate::abi::PENDING;
use crate::abi::RawSlice;
use crate::abi::Services;

/// The state of an invocation in its arena: the future, and what it borrows.
struct Frame<F> {
    db: Db<'static>,
    reply: Reply<'static>,
    future: F,
}

/// Starts the function when `call.future` is null, resumes it otherwise, and polls it once.
///
/// `start` must not rely on `'static`, which stands for the lifetime of the invocation; `start` should be a function
/// that is generic over that lifetime.
///
/// # Safety
/// `call` is valid and everything that it points at stays so until the invocation ends; `services` are those of the
/// invocation running on this thread; a call whose future was ready is not run again; every run of one call uses the
/// same `F`.
#[inline]
pub unsafe fn run<F, S>(services: &Services, call: *mut Call, start: S) -> Code
where
    S: FnOnce(&'static Db<'static>, Args<'static>, &'static mut Reply<'static>) -> F,
    F: Future<Output = Result<(), Error>>,
{
    // SAFETY: `call` is valid, by contract; the future in it is null or what `begin` stored with the same F.
    let frame = unsafe {
        let frame = (*call).future.cast::<Frame<F>>();
        if frame.is_null() { begin(services, call, start) } else { frame }
    };
    // SAFETY: the frame lies in the arena, which never moves it, until the invocation ends; nothing else holds a
    // reference to its future, and its destructor never runs.
    let future = unsafe { Pin::new_unchecked(&mut (*frame).future) };
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => PENDING,
        Poll::Ready(Ok(())) => OK,
        Poll::Ready(Err(error)) => error.code(),
    }
}

/// Places the frame of an invocation in its arena.
///
/// # Safety
/// As for [`run`].
#[inline]
unsafe fn begin<F, S>(services: &Services, call: *mut Call, start: S) -> *mut Frame<F>
where
    S: FnOnce(&'static Db<'static>, Args<'static>, &'static mut Reply<'static>) -> F,
{
    // SAFETY: the services are those of the invocation on this thread.
    let frame = unsafe { (services.allocate)(size_of::<Frame<F>>(), align_of::<Frame<F>>()) };
    if frame.is_null() {
        // SAFETY: as above; the text is constant.
        unsafe { (services.abandon)(1, RawSlice::of(b"the function's state does not fit the arena")) };
    }
    let frame = frame.cast::<Frame<F>>();
    // SAFETY: the arena returned memory of this size and alignment, used only by this frame. `call` is valid until the
    // invocation ends, which is what 'static stands for here: the future that borrows db and reply lies beside them and
    // is dropped, without a destructor, with them.
    unsafe {
        (&raw mut (*frame).db).write(Db::from_raw(&*(*call).host, (*call).context));
        let reply = NonNull::new_unchecked(&raw mut (*call).reply);
        (&raw mut (*frame).reply).write(Reply::from_raw(reply));
        let future = start(&(*frame).db, Args::of(call), &mut (*frame).reply);
        (&raw mut (*frame).future).write(future);
        (*call).future = frame.cast();
    }
    frame
}
