//! Entrances of the server beside the workers' frames: streams, channels of local clients, metrics over HTTP.
//!
//! [`listening`] accepts streams within the limits of [`crate::control_plane::streams`]; [`opening`] authenticates the
//! peer of each and hands other servers' streams to [`crate::moving`] or [`crate::remote`]; [`connection`] serves the
//! others: it executes administrative requests and queues data requests for workers.
//! Streams that come before the server can serve wait at its [`gate`]. [`shm_listener`] attaches local clients over shared memory; [`metrics_http`] serves metrics.

pub mod connection;
pub mod gate;
pub mod listening;
pub mod metrics_http;
pub mod opening;
pub mod shm_listener;
