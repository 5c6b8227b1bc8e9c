//! refused: src/lib.rs:9:108: `vtable` gives an address; instead, use references and slices
#![no_std]
extern crate alloc;
use alloc::boxed::Box;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }

async fn run(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let text = core::future::poll_fn(|cx| core::task::Poll::Ready(alloc::format!("{cx:?} {:?}", cx.waker().vtable()))).await;
    reply.write(text.as_bytes())
}
