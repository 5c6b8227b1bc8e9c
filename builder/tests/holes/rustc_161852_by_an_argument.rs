//! refused: src/lib.rs:11:17: a method called `len` that could change what it is given; instead, take `&self`, and besides shared references and numbers, or choose another name
#![no_std]
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub enum Never {}
impl Never { pub fn len(&self) -> usize { match *self {} } }
pub struct Stop;
impl core::ops::Add<u8> for Stop { type Output = Never; fn add(self, _: u8) -> Never { panic!("stop") } }
pub struct S<'a>(pub &'a [&'a [&'a [u32]]]);
pub struct H;
impl H { pub fn len(&self, s: &mut S<'_>) -> usize { s.0 = &[]; 0 } }
#[inline(never)]
pub fn f(h: &H, s: &mut S<'_>) -> u32 { s.0[1][h.len(s)][(Stop + 1).len()] }
async fn run(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let a: [&[&[u32]]; 2] = [&[&[1]], &[&[2]]];
    reply.u32(f(&H, &mut S(&a)))
}
