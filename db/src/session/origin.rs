//! The return path of a request that is answered later: an invocation, or any request over a stream.
//!
//! A request in a frame that runs to completion needs none. An invocation keeps an [`Origin`] until it ends; then
//! origin, status and reply go to the worker, which stores the reply for retries and sends it.

use std::net::SocketAddr;
use std::sync::Arc;

use wire::Status;

use super::Session;
use crate::sync::oneshot::Sender;

/// The sender of a request and the destination of its reply.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The session of the request.
    pub session: Arc<Session>,
    /// The request's number in its session.
    pub sequence: u64,
    /// Whether the exactly-once ring holds an executing record that must be completed.
    pub recorded: bool,
    /// The destination of the reply.
    pub route: Route,
}

/// The destination of a reply.
#[derive(Clone, Debug)]
pub enum Route {
    /// Into a frame.
    Frame {
        /// The index of the worker whose port received the request; the reply leaves from there.
        port: u16,
        /// The client's address.
        peer: SocketAddr,
    },
    /// To the control thread of a stream.
    Stream(Sender<StreamAnswer>),
}

/// The reply to a request over a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamAnswer {
    /// The status of the request.
    pub status: Status,
    /// The body of the reply.
    pub body: Vec<u8>,
}
