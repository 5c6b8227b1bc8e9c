//! The Splinter server: tenants, sessions, native operations, extensions, and the threads that run them.
//!
//! ```text
//!   boot            starts and stops the parts
//!   front           streams, channels of local clients, metrics over HTTP
//!   administration  requests of operators and tenants; changes of other servers
//!   moving, remote  migrations of tablets; objects of other servers
//!   backups         which other servers have the log
//!   control_plane   shared state of the control threads, and the changes that they make
//!   worker          the threads that serve: dispatch, native requests, invocations, outgoing frames
//!   view            what workers know: changes, catalog, the server's view and its fence
//!   extension       registry, native, invocation
//!   ops             read, write, transaction: everything that touches the store
//!   session         tokens, the exactly-once ring
//!   tablet          tables by number
//!   sched           load, offers       tenant       peer       etcd
//!   metrics         config      process
//!   limits          clock       sync
//! ```
//!
//! Imports go down only. The path of a request: [`worker`] receives a batch of frames, [`worker::dispatch`] decodes all
//! of it, prefetches, executes through [`ops`] and writes the replies into the outgoing frames. Control threads own
//! everything slow and tell the workers by messages ([`view::change`]).

pub mod administration;
pub mod backups;
pub mod boot;
pub mod clock;
pub mod config;
pub mod control_plane;
pub mod durability;
pub mod etcd;
pub mod extension;
pub mod front;
pub mod limits;
pub mod metrics;
pub mod moving;
pub mod ops;
pub mod peer;
pub mod process;
pub mod remote;
pub mod sched;
pub mod session;
pub mod sync;
pub mod tablet;
pub mod tenant;
pub mod view;
#[path = "../../store/src/weakened.rs"]
mod weakened;
pub mod worker;
