//! refused: src/lib.rs:8:6: something called like a primitive type; instead, choose another name
#![no_std]
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read peek }
pub enum Word { Numbers(usize, usize), Bytes(&'static [u8]) }
pub struct Change<A>(pub usize, pub usize, pub core::marker::PhantomData<A>);
/// The type parameter is called like a number, so `is_empty` seems to take one.
impl<f32: core::ops::DerefMut<Target = Word>> Change<f32> {
    pub fn contains(&self, mut word: f32) -> bool { *word = Word::Numbers(self.0, self.1); false }
}
fn none<T>(_: impl Fn() -> T) -> [T; 0] { [] }
#[inline(never)]
pub fn forge<'c>(change: &Change<&'c mut Word>, word: &'c mut Word, at: usize) -> &'static [u8] {
    let never = none(|| -> ! { panic!() });
    let never = &never[..];
    match *word {
        Word::Bytes(_) if change.contains(word) && never[at] => b"",
        Word::Bytes(bytes) => bytes,
        Word::Numbers(..) => b"",
    }
}
async fn peek(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut reader = args.reader();
    let (address, length) = (reader.u64()? as usize, reader.u64()? as usize);
    let mut word = Word::Bytes(b"x");
    reply.write(forge(&Change(address, length, core::marker::PhantomData), &mut word, length))
}
