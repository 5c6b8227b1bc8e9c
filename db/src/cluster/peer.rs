//! Streams between servers of a cluster: who opens one for what, and how both ends prove that they belong to it.
//!
//! ```text
//!   one that opens                                      one that is asked
//!     number, nonce ────────────────────────────────────►
//!     ◄──────────────────────────────────────── nonce, proof over both
//!     proof over both, what it is for ──────────────────►
//!     ◄──────────────────────────────────────── yes, or a refusal
//!     records as of net::Stream ◄───────────────────────►
//! ```
//! A proof shows that its maker knows the cluster's secret, which is in the metadata and never sent ([`proof`]). It binds
//! both numbers, both nonces and the direction, so none can be used again or turned around. What follows is neither
//! encrypted nor sealed, as nothing between clients and servers is: see docs/security.md. The listener is that of
//! clients, so that a server has one TCP port.

mod opening;
mod proof;

pub use opening::{Challenge, PeerError, Purpose, open};
pub use proof::{ClusterSecret, Prover};
