//! The SDK for authors of extensions.
//!
//! An extension is a small `no_std` crate whose functions run inside the store, on references to its records:
//!
//! ```
//! # #![allow(dead_code)]
//! use sandstorm::{Args, Db, Error, Reply};
//!
//! sandstorm::extension! { read length }
//!
//! /// Replies with the length of the record under the caller's key.
//! async fn length(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
//!     let value = db.get(args.table(), args.key()).await?.ok_or(Error::NotFound)?;
//!     reply.u32(value.len() as u32)
//! }
//! # fn main() {}
//! ```
//!
//! The same function runs in the server, in a unit test on `testing::MemoryDb` (feature `testing`) and in a client:
//! [`Db`] is one concrete type over a table of host calls. The crate needs only `core`; cargo compiles it for unit
//! tests, and plain `rustc` when a server builds an extension.
//!
//! Safe code can neither create a [`Db`], an [`Args`] or a [`Reply`], nor keep one, or memory that it lent, beyond the
//! invocation. Memory that the store lends is read-only and does not move until the invocation ends; that of a page of
//! a scan or an enumeration ends with the next page.
#![no_std]

#[cfg(feature = "testing")]
extern crate alloc;

pub mod abi;
mod access;
mod args;
mod db;
#[doc(hidden)]
pub mod entry;
mod enumerate;
mod error;
mod operation;
mod page;
mod record;
mod reply;
mod scan;
#[cfg(feature = "testing")]
pub mod testing;

pub use args::Args;
pub use args::Reader;
pub use db::Db;
pub use db::Level;
pub use enumerate::Cursor;
pub use enumerate::Enumerate;
pub use error::Error;
pub use operation::Delete;
pub use operation::FindTable;
pub use operation::Get;
pub use operation::GetMany;
pub use operation::GetRecord;
pub use operation::Increment;
pub use operation::IncrementFloat;
pub use operation::Put;
pub use operation::YieldNow;
pub use page::Entries;
pub use page::Entry;
pub use page::EntryPage;
pub use record::Condition;
pub use record::Record;
pub use record::Table;
pub use reply::Reply;
pub use scan::KeyRange;
pub use scan::NextEntry;
pub use scan::Scan;

/// Declares the functions that callers may invoke; used once, at the root of the crate.
///
/// `read` functions may not write. The writes of `write` functions are applied together when the function returns `Ok`,
/// and not at all otherwise. Each function is an `async fn(&Db<'_>, Args<'_>, &mut Reply<'_>) -> Result<(), Error>` at
/// the root of the crate.
///
/// ```
/// # #![allow(dead_code)]
/// # use sandstorm::{Args, Db, Error, Reply};
/// # async fn peek(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
/// # async fn poke(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
/// sandstorm::extension! { read peek, write poke }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! extension {
    ($($mode:ident $function:ident),+ $(,)?) => {
        #[doc(hidden)]
        pub mod splinter_entry {
            $(
                #[inline]
                pub fn $function<'a>(
                    db: &'a $crate::Db<'a>,
                    args: $crate::Args<'a>,
                    reply: &'a mut $crate::Reply<'a>,
                ) -> impl ::core::future::Future<Output = ::core::result::Result<(), $crate::Error>> + 'a {
                    $crate::extension_mode!($mode);
                    super::$function(db, args, reply)
                }
            )+
        }
    };
}

/// Accepts the two modes of a function in [`extension!`]: `read` and `write`.
#[doc(hidden)]
#[macro_export]
macro_rules! extension_mode {
    (read) => {};
    (write) => {};
    ($other:ident) => {
        ::core::compile_error!("a function of an extension is `read` or `write`");
    };
}
