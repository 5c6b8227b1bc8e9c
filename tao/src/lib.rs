//! TAO: a graph of typed objects and associations, after "TAO: Facebook's Distributed Data Store for the Social Graph"
//! (USENIX ATC 2013), over the store's extension SDK.
//!
//! An object is (id, type, data). An association is (id1, type, id2, time, data); those of one type that leave one
//! object form a list, newest first. A type may have an inverse, which every write maintains too.
//!
//! Everything here is a function of [`sandstorm::Db`], so the same code runs inside the server as an extension, on an
//! in-memory store in a unit test, and at a client over plain gets. A graph occupies one table of its own. Lists of up
//! to 48 entries are one record; longer ones are chunks under a directory and hold millions of entries.
//!
//! Bottom to top: [`key`], [`limits`], [`fault`] < [`entry`], [`object`], [`tally`], [`mix`] < [`head`] < [`chunk`],
//! [`chunked`] < [`edit`] < [`association`], [`bulk`] < [`message`] < [`friends`] < [`function`].
#![no_std]

extern crate alloc;

pub mod association;
pub mod bulk;
pub mod chunk;
pub mod chunked;
pub mod edit;
pub mod entry;
pub mod fault;
pub mod friends;
pub mod function;
pub mod head;
pub mod key;
pub mod limits;
pub mod message;
pub mod mix;
pub mod object;
pub mod tally;
