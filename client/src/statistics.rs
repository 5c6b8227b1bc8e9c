//! Counters of a session's traffic.

/// Counters of a session, or of a group of sessions; they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStatistics {
    /// Requests accepted from the caller.
    pub requests: u64,
    /// Datagrams sent.
    pub frames_sent: u64,
    /// Datagrams received.
    pub frames_received: u64,
    /// Bytes of the datagrams sent, without the headers of IP and UDP.
    pub bytes_sent: u64,
    /// Bytes of the datagrams received, without the headers of IP and UDP.
    pub bytes_received: u64,
    /// Received datagrams that could not be decoded.
    pub frames_refused: u64,
    /// Requests sent over the stream because they, or their replies, exceed a datagram.
    pub stream_requests: u64,
    /// Bytes of these requests and replies.
    pub stream_bytes: u64,
    /// Number of times that the session was reopened.
    pub reopened: u64,
}
