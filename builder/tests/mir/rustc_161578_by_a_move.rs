//! refused: src/lib.rs:13:14: a guard or an index changes or moves something here; instead, compute it with `let` before
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct Change<'c>(pub &'c mut u8);
impl core::ops::BitOr<u8> for Change<'_> {
    type Output = bool;
    fn bitor(self, by: u8) -> bool { *self.0 = by; false }
}
pub fn f(change: Change<'_>, word: u8) -> u8 {
    match word {
        1 if change | 1 => 0,
        _ => 1,
    }
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
