//! refused: src/lib.rs:3:30: there is no `async fn run` in this file; instead, write `async fn NAME(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error>`
#![no_std]
sandstorm::extension! { read run }
