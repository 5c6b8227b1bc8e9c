//! The way back of a request that is answered later: an invocation, or anything that came over a stream.
//!
//! A request in a frame that runs to completion needs none of this. An invocation keeps an [`Origin`] until
//! it ends; whoever ran it hands origin, status and reply to the worker, which stores the reply for retries
//! and sends it.

use std::net::SocketAddr;
use std::sync::Arc;

use wire::Status;

use super::Session;
use crate::sync::oneshot::Sender;

/// Who asked, and where the answer goes.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The session of the request.
    pub session: Arc<Session>,
    /// The request's number in its session.
    pub sequence: u64,
    /// Whether the exactly-once ring holds an executing record that the end has to complete.
    pub recorded: bool,
    /// Where the answer goes.
    pub route: Route,
}

/// Where an answer goes.
#[derive(Clone, Debug)]
pub enum Route {
    /// Into a frame.
    Frame {
        /// Index of the worker to whose port the request came: the answer leaves from there.
        port: u16,
        /// The client's address.
        peer: SocketAddr,
    },
    /// To the control thread of a stream.
    Stream(Sender<StreamAnswer>),
}

/// The answer to a request that came over a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamAnswer {
    /// How it ended.
    pub status: Status,
    /// Body of the reply.
    pub body: Vec<u8>,
}
