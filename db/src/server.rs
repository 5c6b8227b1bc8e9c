//! The server's threads, and the path of requests to them.
//!
//! Workers, one per core: [`worker`] runs the loop, [`dispatch`] decodes batches, [`prefetch`] requests memory early,
//! [`native`] executes native requests, [`invocation`] starts invocations, [`outgoing`] collects replies in frames.
//! Workers see each other's load in [`siblings`], share invocations there, and take frames from each other's [`ports`].
//!
//! Control threads: [`listening`] accepts streams within the limits of [`streams`]; [`connection`] serves each one: it
//! opens sessions ([`opening`]), executes administrative requests ([`administration`]) and queues data requests for
//! workers. A [`change`] carries a decision of a control thread to each worker's [`catalog`]. A
//! [`grant`] gives another tenant a right. The [`view`] versions the server's [`ownership`] of tables, and
//! holds the time until which the server may serve them. The [`home_balancer`] moves tenants if the load stays uneven.
//! [`memory`] backs memory before its use and reports memory that fails, [`metrics_http`] serves metrics over HTTP.
//!
//! In a cluster [`membership`] applies changes of other servers, [`migrations`] moves tablets between servers,
//! [`coordination`] plans the moves on one server, [`remote`] reads objects of other servers for invocations, and
//! [`lease_cache`] replaces the metadata while it does not answer.
//!
//! [`boot`] assembles the parts; [`process`] bounds the time that they take to end.

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
pub mod dispatch;
pub mod grant;
pub mod home_balancer;
pub mod invocation;
pub mod lease_cache;
pub mod listening;
pub mod listing;
pub mod membership;
pub mod memory;
pub mod metrics_http;
pub mod migrations;
pub mod native;
pub mod opening;
pub mod outgoing;
pub mod ownership;
pub mod pending_requests;
pub mod ports;
pub mod prefetch;
pub mod process;
pub mod remote;
pub mod replies;
pub mod response_limiter;
pub mod shm_listener;
pub mod siblings;
mod stale_read;
pub mod streams;
pub mod view;
pub mod worker;
