//! Tablets that this server moves, to it or away from it, by the number of the migration.

use net::Stream;
use wire::Status;

use crate::cluster::peer::ClusterSecret;

/// See the file's head.
#[derive(Debug)]
pub struct Migrations {
    own: u32,
    secret: ClusterSecret,
}

impl Migrations {
    /// None yet, of the server of this number.
    #[must_use]
    pub fn new(own: u32, secret: ClusterSecret) -> Self {
        Self { own, secret }
    }

    /// This server's number.
    #[must_use]
    pub fn own(&self) -> u32 {
        self.own
    }

    /// What the servers of the cluster prove to each other that they know.
    #[must_use]
    pub fn secret(&self) -> &ClusterSecret {
        &self.secret
    }

    /// Hands a stream of the server `opener` to the migration of this number, and stays until it is over.
    ///
    /// # Errors
    /// The stream with the answer to it: `Unavailable` where there is no such migration, maybe not yet.
    pub fn attach(&self, _number: u64, _opener: u32, stream: Stream) -> Result<(), (Stream, Status)> {
        Err((stream, Status::Unavailable))
    }
}
