//! refused: src/lib.rs:19:34: a match guard that does more than read and compare values; instead, compute it with `let` before the `match`, or write an `if` inside the arm
#![no_std]
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read peek }

pub enum Word { Numbers(usize, usize), Bytes(&'static [u8]) }
pub struct Change(Word, usize, usize);
/// `&mut Change` is an iterator too, so `change.max()` of it calls this.
impl Iterator for Change {
    type Item = bool;
    fn next(&mut self) -> Option<bool> { self.0 = Word::Numbers(self.1, self.2); None }
}
fn none<T>(_: impl Fn() -> T) -> [T; 0] { [] }
#[inline(never)]
pub fn forge(change: &mut Change, at: usize) -> &'static [u8] {
    let never = none(|| -> ! { panic!() });
    let never = &never[..];
    match change.0 {
        Word::Bytes(_) if change.max().is_some() && never[at] => b"",
        Word::Bytes(bytes) => bytes,
        Word::Numbers(..) => b"",
    }
}
async fn peek(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut reader = args.reader();
    let (address, length) = (reader.u64()? as usize, reader.u64()? as usize);
    reply.write(forge(&mut Change(Word::Bytes(b"x"), address, length), length))
}
