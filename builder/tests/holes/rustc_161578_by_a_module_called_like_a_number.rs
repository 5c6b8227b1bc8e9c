//! refused: src/lib.rs:8:9: something called like a primitive type; instead, choose another name
#![no_std]
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read peek }
pub enum Word { Numbers(usize, usize), Bytes(&'static [u8]) }
pub struct Change(Word, usize, usize);
/// A module called like a number: `f32::from(change)` calls this.
pub mod f32 {
    pub fn from(change: &mut super::Change) -> bool { change.0 = super::Word::Numbers(change.1, change.2); false }
}
fn none<T>(_: impl Fn() -> T) -> [T; 0] { [] }
#[inline(never)]
pub fn forge(change: &mut Change, at: usize) -> &'static [u8] {
    let never = none(|| -> ! { panic!() });
    let never = &never[..];
    match change.0 {
        Word::Bytes(_) if f32::from(change) && never[at] => b"",
        Word::Bytes(bytes) => bytes,
        Word::Numbers(..) => b"",
    }
}
async fn peek(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut reader = args.reader();
    let (address, length) = (reader.u64()? as usize, reader.u64()? as usize);
    reply.write(forge(&mut Change(Word::Bytes(b"x"), address, length), length))
}
