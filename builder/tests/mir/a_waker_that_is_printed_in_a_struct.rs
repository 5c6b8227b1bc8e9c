//! refused: src/lib.rs:8:35: an address is printed here; instead, print the value
#![no_std]
extern crate alloc;
use alloc::format;
use core::fmt;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
#[derive(Debug)] pub struct W<'a>(&'a core::task::Waker);
async fn run(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let text = core::future::poll_fn(|cx| core::task::Poll::Ready(format!("{:?}", W(cx.waker())))).await;
    reply.write(text.as_bytes())
}
