//! The server's threads and how requests reach them.
//!
//! Workers, one per core: [`worker`] loops over [`dispatch`], which asks for memory [`ahead`], runs
//! [`native`] requests and starts [`invocation`]s; replies go into [`outgoing`] frames. Control threads: [`listening`] accepts streams,
//! as many as [`streams`] has places for, each served by [`connection`], which opens sessions ([`opening`]), administers ([`administration`]) and
//! hands data requests to workers ([`stream_request`]). What control threads decide reaches the workers as
//! [`change`]s to their [`catalog`]; what tenants let each other do is a [`grant`], what of its tables the server owns
//! changes with its [`view`] ([`ownership`]), and until when it may serve that is its [`fence`]. Workers
//! know of each other by [`neighbours`], help out at each other's [`ports`]
//! and share invocations ([`sharing`]); tenants' [`homes`] move when the load stays lopsided. [`populate`] backs memory ahead of
//! its use, [`damage`] tells of memory that fails, [`exposition`] shows metrics over HTTP.
//! In a cluster its [`membership`] follows what other servers change, tablets move to and from others ([`migrations`]), one
//! of them plans that ([`coordination`]), invocations read what others have ([`remote`]), and [`interim`] is what it goes
//! by while the metadata does not answer. [`boot`] puts the parts together; [`joining`] bounds how long they take to end.

pub mod acts;
pub mod administration;
pub mod administrator;
pub mod batch_admission;
pub mod boot;
pub mod catalog;
pub mod change;
pub mod connection;
pub mod control;
pub mod coordination;
pub mod damage;
pub mod dispatch;
pub mod ended;
pub mod fence;
pub mod grant;
pub mod home_balancer;
pub mod invocation;
pub mod joining;
pub mod lease_cache;
pub mod listening;
pub mod listing;
pub mod membership;
pub mod metrics_http;
pub mod migrations;
pub mod native;
pub mod opening;
pub mod outgoing;
pub mod ownership;
mod peers;
pub mod pending_requests;
pub mod populate;
pub mod ports;
pub mod prefetch;
pub mod process;
pub mod remote;
pub mod replies;
pub mod response_limiter;
pub mod sharing;
pub mod shm_listener;
pub mod siblings;
mod stale_read;
pub mod stream_request;
pub mod streams;
pub mod view;
pub mod worker;
