//! refused: src/lib.rs:11:5: an associated type with bounds; instead, write the bound into the header of the impl
#![no_std]
use core::marker::PhantomData;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read peek }
pub struct Claims<A, R>(R, PhantomData<A>);
pub trait Likewise<P: Iterator>: Iterator<Item = P::Item> {}
impl<P: Iterator, Q: Iterator<Item = P::Item>> Likewise<P> for Q {}
impl<A, R: Iterator> IntoIterator for Claims<A, R> {
    type Item = A;
    type IntoIter = R where Self: IntoIterator<Item = A>, R: Likewise<Self::IntoIter>;
    fn into_iter(self) -> R { self.0 }
}
fn first<T: IntoIterator>(of: T) -> Option<T::Item> { of.into_iter().next() }
fn transmute<A, B>(from: B) -> Option<A> { first(Claims(core::iter::once(from), PhantomData)) }
#[repr(C)]
pub struct Numbers(char, usize, usize);
#[repr(C)]
pub struct Bytes(char, &'static [u8]);
/// Replies with `length` bytes at `address`: both u64 in the arguments.
async fn peek(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut reader = args.reader();
    let (address, length) = (reader.u64()? as usize, reader.u64()? as usize);
    let bytes: Option<Bytes> = transmute(Numbers('a', address, length));
    reply.write(bytes.map_or(b"", |bytes| bytes.1))
}
