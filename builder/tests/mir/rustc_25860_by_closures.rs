//! refused: src/lib.rs:8:14: a function or a closure becomes a function pointer here; instead, use a parameter `impl Fn(..)`, or an enum and a `match`
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn pick(n: u8) -> u8 {
    let f = match n {
        0 => |x: u8| x + 1,
        _ => |x: u8| x + 2,
    };
    f(n)
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
