//! Streams between servers of a cluster: their purposes, and how both ends prove that they belong to the cluster.
//!
//! ```text
//!   opening server                                      asked server
//!     number, nonce ────────────────────────────────────►
//!     ◄──────────────────────────────────────── nonce, proof over both
//!     proof over both, purpose ─────────────────────────►
//!     ◄──────────────────────────────────────── yes, or a refusal
//!     records as of net::Stream ◄───────────────────────►
//! ```
//! A proof shows that its maker knows the cluster's secret, which is in the metadata and never sent (`peer/proof.rs`). It
//! covers both numbers, both nonces and the direction, so it can be neither replayed nor reflected. The following
//! records are neither encrypted nor sealed, like all traffic between clients and servers: see docs/security.md. The
//! stream uses the listener of clients, so that a server has one TCP port.

mod challenge;
mod proof;

pub use challenge::{Challenge, ChallengeError, Opening, Purpose};
pub use proof::{ClusterSecret, Prover};
