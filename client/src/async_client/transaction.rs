//! Transactions of an async client: as [`crate::Transaction`].

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use wire::{KeyRange, Status};

use super::AsyncClient;
use crate::Error;
use crate::pages::Listed;
use crate::transaction_sets::{Attempts, NotCommitted, Scan, TransactionSets, not_committed};

/// A timer of the runtime is no finer.
const TIMER_STEP: Duration = Duration::from_millis(1);

/// A transaction in progress: see [`AsyncClient::transaction`]. Clones are of the same transaction.
#[derive(Clone)]
pub struct AsyncTransaction {
    client: AsyncClient,
    sets: Arc<Mutex<TransactionSets>>,
}

impl AsyncClient {
    /// Runs `run` and commits its writes as one, if nothing that it has read has changed; else runs it again. See
    /// [`crate::Client::transaction`]. Whoever drops the future before its end does not know whether it was committed.
    ///
    /// ```no_run
    /// # async fn swap(client: splinter_client::AsyncClient, table: u32) -> Result<(), splinter_client::Error> {
    /// let swapped = client
    ///     .transaction(|tx| async move {
    ///         let [one, other] = [tx.get(table, b"one").await?, tx.get(table, b"other").await?];
    ///         let (Some(one), Some(other)) = (one, other) else { return Ok(false) };
    ///         tx.put(table, b"one", &other);
    ///         tx.put(table, b"other", &one);
    ///         Ok(true)
    ///     })
    ///     .await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`crate::Client::transaction`]; `Malformed` if a clone of the transaction is left when `run` has ended.
    pub async fn transaction<T, F: Future<Output = Result<T, Error>>>(
        &self,
        mut run: impl FnMut(AsyncTransaction) -> F,
    ) -> Result<T, Error> {
        let mut attempts = Attempts::new();
        loop {
            let sets = Arc::<Mutex<TransactionSets>>::default();
            let result = run(AsyncTransaction { client: self.clone(), sets: Arc::clone(&sets) }).await?;
            // Whoever has a clone may still write.
            let Some(sets) = Arc::into_inner(sets) else {
                let text = "a clone of the transaction is left when it ends".to_owned();
                return Err(Error::Refused { status: Status::Malformed, text });
            };
            let sets = sets.into_inner().unwrap_or_else(PoisonError::into_inner);
            match self.commit(sets).await {
                Ok(()) => return Ok(result),
                Err(failure) => match attempts.pause(failure)? {
                    pause if pause < TIMER_STEP / 2 => tokio::task::yield_now().await,
                    pause => tokio::time::sleep(pause).await,
                },
            }
        }
    }

    async fn commit(&self, sets: TransactionSets) -> Result<(), NotCommitted> {
        if sets.is_trivial() {
            return Ok(());
        }
        sets.check(|table, key| self.server_of(table, key))?;
        let commit = sets.commit();
        let outcome = self.call(&commit.request(), |status, body| commit.outcome(status, body)).await;
        outcome.map_err(NotCommitted::Final)?
    }
}

impl AsyncTransaction {
    /// Reads an object: the transaction's own write of it, what it has read of it before, or what the server has. `None` if it does not
    /// exist.
    ///
    /// # Errors
    /// The server's refusal, or no reply.
    pub async fn get(&self, table: u32, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let known = self.sets().known(table, key);
        if let Some(known) = known {
            return Ok(known);
        }
        let object = self.client.get(table, key).await.map_err(not_committed)?;
        let value = object.as_ref().map(|object| object.value.clone());
        self.sets().read(table, key, object);
        Ok(value)
    }

    /// Reads several objects of a table together, in the order of `keys`; later [`AsyncTransaction::get`]s find them.
    ///
    /// # Errors
    /// As [`AsyncTransaction::get`].
    pub async fn multi_get(&self, table: u32, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let unknown = self.sets().unknown(table, keys);
        let objects = self.client.multi_get(table, &unknown).await.map_err(not_committed)?;
        let mut sets = self.sets();
        for (key, object) in unknown.into_iter().zip(objects) {
            sets.read(table, key, object);
        }
        Ok(keys.iter().map(|key| sets.known(table, key).flatten()).collect())
    }

    /// Reads at most `limit` objects of a range of an ordered table, as [`crate::Transaction::scan`].
    ///
    /// # Errors
    /// As [`crate::Transaction::scan`].
    pub async fn scan(&self, table: u32, range: KeyRange<'_>, limit: usize) -> Result<Vec<Listed>, Error> {
        let mut scan = Scan::begin(range, limit)?;
        while let Some((from, size)) = scan.next() {
            scan.add(self.client.scan_page(table, range, &from, size).await.map_err(not_committed)?)?;
        }
        Ok(self.sets().scanned(table, range, scan))
    }

    /// Writes an object when the transaction commits.
    pub fn put(&self, table: u32, key: &[u8], value: &[u8]) {
        self.sets().write(table, key, Some(value), None);
    }

    /// Writes an object that is absent `ttl_ms` milliseconds after the commit.
    pub fn put_for(&self, table: u32, key: &[u8], value: &[u8], ttl_ms: u64) {
        self.sets().write(table, key, Some(value), Some(ttl_ms));
    }

    /// Removes an object, if there is one, when the transaction commits.
    pub fn delete(&self, table: u32, key: &[u8]) {
        self.sets().write(table, key, None, None);
    }

    fn sets(&self) -> MutexGuard<'_, TransactionSets> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
