//! What a sender needs of the stream to a backup.

use cluster::replication::message::FromBackup;
use net::Duplex;

/// The stream to a backup has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkEnded;

/// A stream to a backup. Neither call waits for it.
pub trait ReplicaLink: Send {
    /// Sends a message, or keeps it until the backup takes it, or until [`ReplicaLink::flush`].
    ///
    /// # Errors
    /// [`LinkEnded`]
    fn send(&mut self, message: &[u8]) -> Result<(), LinkEnded>;

    /// Sends what is kept, as much as the backup takes.
    ///
    /// # Errors
    /// [`LinkEnded`]
    fn flush(&mut self) -> Result<(), LinkEnded> {
        Ok(())
    }

    /// Returns the next answer, if one has come.
    ///
    /// # Errors
    /// [`LinkEnded`]
    fn receive(&mut self) -> Result<Option<FromBackup>, LinkEnded>;

    /// Returns what a thread sleeps over until something comes, if it is a socket.
    fn socket(&self) -> Option<&Duplex>;
}
