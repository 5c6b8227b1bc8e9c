//! The Splinter server: tenants, sessions, native operations, extensions, and the threads that run them.
//!
//! ```text
//!   server       boot, worker, dispatch, outgoing frames, control streams, administration
//!   extension    registry, native, invocation
//!   ops          read, write, transaction: everything that touches the store
//!   session      tokens, the exactly-once ring
//!   tablet       tables by number
//!   sched        load, offers       tenant       peer       etcd
//!   metrics      config
//!   limits       clock       sync
//! ```
//!
//! Imports go down only. A request's way: [`server::worker`] receives a batch of frames,
//! [`server::dispatch`] decodes all of it, prefetches, executes through [`ops`] and writes the replies
//! into the outgoing frames. Control threads own everything slow and tell the workers by messages.

pub mod clock;
pub mod config;
pub mod etcd;
pub mod extension;
pub mod limits;
pub mod metrics;
pub mod ops;
pub mod peer;
pub mod sched;
pub mod server;
pub mod session;
pub mod sync;
pub mod tablet;
pub mod tenant;
