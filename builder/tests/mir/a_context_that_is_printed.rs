//! refused: src/lib.rs:7:83: an address is printed here; instead, print the value
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
async fn run(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let text = core::future::poll_fn(|cx| core::task::Poll::Ready(alloc::format!("{cx:?}"))).await;
    reply.write(text.as_bytes())
}
