//! refused: src/lib.rs:12:22: a `break` or `continue` within the arguments of a call; instead, compute it with `let` first
#![no_std]
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read peek }
pub enum Word { Numbers(usize, usize), Bytes(&'static [u8]) }
#[inline(never)]
pub fn forge(address: usize, length: usize) -> &'static [u8] {
    let mut v: Option<Word> = None;
    let mut r: Option<&mut Word> = None;
    'b: {
        r = Some(v.insert(match true {
            false => break 'b,
            true => Word::Bytes(b"x"),
        }));
    }
    match &v {
        Some(Word::Bytes(bytes)) => {
            *r.unwrap() = Word::Numbers(address, length);
            *bytes
        }
        _ => b"",
    }
}
/// Replies with `length` bytes at `address`: both u64 in the arguments.
async fn peek(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut reader = args.reader();
    let (address, length) = (reader.u64()? as usize, reader.u64()? as usize);
    reply.write(forge(address, length))
}
