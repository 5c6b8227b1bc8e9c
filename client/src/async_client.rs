//! The async interface, for programs on tokio: many tasks over one session.
//!
//! An [`AsyncClient`] is cheap to clone, and all clones share a session. Requests of tasks that run at the same time share frames,
//! so a service that has many tasks pipelines by itself. A task on the runtime, the driver, moves the frames.
//!
//! *Cancellation.* A future that is dropped leaves the session as it was. Its request may have been sent: whoever drops the future
//! of a write does not know whether it was executed, once, as after [`Error::TimedOut`]. The server still executes it, and the
//! window has its place until the reply has come.
//!
//! What is not here (tables, extensions, archives) is done by [`AsyncClient::blocking`].

mod driver;
mod shared;
mod transaction;

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::spawn_blocking;
use wire::{Condition, KeyRange, Keys, Request, RequestDurability, Status};

pub use self::transaction::AsyncTransaction;

use self::driver::Driver;
use self::shared::{SharedSession, ended};
use crate::answers::{self, Object};
use crate::client::Client;
use crate::function::Function;
use crate::pages::{Cursor, Page, PageSize};
use crate::{ClientConfig, Error, Session};

/// A tenant's connection to a server, for many tasks at once. See the module's head.
///
/// ```no_run
/// # async fn visit() -> Result<(), splinter_client::Error> {
/// use splinter_client::AsyncClient;
///
/// let client = AsyncClient::connect("127.0.0.1:7700", "acme", "the secret").await?;
/// let table = client.table_open("visits").await?;
/// client.put(table, b"front page", b"hello").await?;
/// assert_eq!(client.get(table, b"front page").await?.unwrap().value, b"hello");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct AsyncClient {
    handle: Arc<Handle>,
    durability: RequestDurability,
}

/// What all clones of a client share. The session ends with it.
struct Handle {
    shared: Arc<SharedSession>,
    place: ClientPlace,
    functions: Mutex<HashMap<String, Function>>,
}

/// Who connects, and where.
#[derive(Clone)]
struct ClientPlace {
    address: String,
    tenant: String,
    secret: String,
    config: ClientConfig,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl AsyncClient {
    /// Opens a session of a tenant with a server. `address` is its host and TCP port, or several separated by commas,
    /// as for [`Session::open`].
    ///
    /// # Errors
    /// [`Error::Unreachable`], or the server's refusal.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time.
    pub async fn connect(address: &str, tenant: &str, secret: &str) -> Result<AsyncClient, Error> {
        AsyncClient::connect_with(address, tenant, secret, ClientConfig::default()).await
    }

    /// Opens a session with the caller's settings.
    ///
    /// # Errors
    /// As [`AsyncClient::connect`].
    ///
    /// # Panics
    /// As [`AsyncClient::connect`].
    pub async fn connect_with(
        address: &str,
        tenant: &str,
        secret: &str,
        config: ClientConfig,
    ) -> Result<AsyncClient, Error> {
        let [address, tenant, secret] = [address, tenant, secret].map(str::to_owned);
        let place = ClientPlace { address, tenant, secret, config };
        let ClientConfig { idle, call_timeout, .. } = place.config;
        let (session, place) = on_thread(move || place.open().map(|session| (session, place))).await?;
        let shared = Arc::new(SharedSession::new(session.driven(), call_timeout));
        let handle = Handle { shared: Arc::clone(&shared), place, functions: Mutex::default() };
        tokio::spawn(Driver::new(shared, idle)?);
        Ok(AsyncClient { handle: Arc::new(handle), durability: RequestDurability::OfTable })
    }

    /// Returns a client over the same session whose replies wait for this: the durability of each request's table, or one that
    /// the caller chooses.
    #[must_use]
    pub fn with_durability(&self, durability: RequestDurability) -> AsyncClient {
        AsyncClient { handle: Arc::clone(&self.handle), durability }
    }

    /// Runs `run` with a blocking client, on a thread for blocking work: for everything that has no async form. The client has
    /// a session of its own, which ends with it; so it is nothing for each request.
    ///
    /// # Errors
    /// As [`Client::connect`]; the error of `run`.
    pub async fn blocking<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut Client) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let place = self.handle.place.clone();
        on_thread(move || run(&mut Client::over(place.open()?))).await
    }

    /// Looks up a table, or a granted one as `owner/table`. Returns its id. As costly as a connection: keep the id.
    ///
    /// # Errors
    /// `UnknownTable`, another refusal, or no reply.
    pub async fn table_open(&self, name: &str) -> Result<u32, Error> {
        let name = name.to_owned();
        self.blocking(move |client| client.table_open(&name)).await
    }

    /// Looks up a function as `extension.function`; see [`Client::invoke`] for other names. Asks the server only the first time.
    ///
    /// # Errors
    /// As [`Client::resolve`].
    pub async fn resolve(&self, name: &str) -> Result<Function, Error> {
        let functions = || self.handle.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions().get(name) {
            return Ok(*function);
        }
        let owned = name.to_owned();
        let function = self.blocking(move |client| client.resolve(&owned)).await?;
        functions().insert(name.to_owned(), function);
        Ok(function)
    }

    /// Calls a function by name and returns its reply, as [`Client::invoke`].
    ///
    /// # Errors
    /// As [`Client::invoke`].
    pub async fn invoke(
        &self,
        name: &str,
        table: u32,
        key: &[u8],
        arguments: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let function = self.resolve(name).await?;
        match self.invoke_function(function, table, key, arguments).await {
            // Since the lookup it was removed, or reinstalled under another id; it was not executed.
            Err(Error::Refused { status: Status::UnknownExtension | Status::UnknownFunction, .. }) => {
                self.handle.functions.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
                let function = self.resolve(name).await?;
                self.invoke_function(function, table, key, arguments).await
            }
            answer => answer,
        }
    }

    /// Calls a function that was resolved before.
    ///
    /// # Errors
    /// As [`Client::invoke`].
    pub async fn invoke_function(
        &self,
        function: Function,
        table: u32,
        key: &[u8],
        arguments: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let request = function.request(table, key, arguments);
        match self.ask(&request, |answer| answer.map(<[u8]>::to_vec)).await {
            // A function that only reads may be called again in the new session.
            Err(Error::SessionLost) if function.only_reads() => {
                self.ask(&request, |answer| answer.map(<[u8]>::to_vec)).await
            }
            answer => answer,
        }
    }

    /// Reads an object; returns `None` if it does not exist.
    ///
    /// # Errors
    /// The server's refusal, or no reply.
    pub async fn get(&self, table: u32, key: &[u8]) -> Result<Option<Object>, Error> {
        self.ask(&Request::Get { table, key }, answers::object).await
    }

    /// Reads many objects of a table, in the order of `keys`, as [`Client::multi_get`].
    ///
    /// # Errors
    /// The first refusal, or no reply.
    pub async fn multi_get(&self, table: u32, keys: &[&[u8]]) -> Result<Vec<Option<Object>>, Error> {
        let chunks = self.handle.shared.state().chunks.split(keys);
        let mut asked = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let request = Request::MultiGet { table, keys: Keys::from_slices(&keys[chunk.clone()]) };
            asked.push((chunk, self.handle.shared.submit_waiting(&request, self.durability).await?));
        }
        let mut objects = vec![None; keys.len()];
        let mut bytes = 0;
        for (chunk, reply) in asked {
            let places = &mut objects[chunk];
            bytes +=
                reply.take(|status, body| answers::objects(Error::checked(status, body), places)).await?;
        }
        self.handle.shared.state().chunks.learn(keys.len(), bytes);
        Ok(objects)
    }

    /// Writes an object unconditionally; returns its version.
    ///
    /// # Errors
    /// The server's refusal, or no reply; see [`Error::outcome_is_unknown`].
    pub async fn put(&self, table: u32, key: &[u8], value: &[u8]) -> Result<u64, Error> {
        self.put_if(table, key, value, Condition::Always).await
    }

    /// Writes an object if a condition holds; returns its version.
    ///
    /// # Errors
    /// [`Error::ConditionFailed`] with the current version, else as [`AsyncClient::put`].
    pub async fn put_if(
        &self,
        table: u32,
        key: &[u8],
        value: &[u8],
        condition: Condition,
    ) -> Result<u64, Error> {
        self.ask(&Request::Put { table, key, value, condition }, answers::version).await
    }

    /// Writes an object with a time to live if a condition holds, as [`Client::put_for`]; returns its version.
    ///
    /// # Errors
    /// `OutOfRange` for a time of 0 or beyond [`crate::TTL_MS_MAX`], else as [`AsyncClient::put_if`].
    pub async fn put_for(
        &self,
        table: u32,
        key: &[u8],
        value: &[u8],
        ttl_ms: u64,
        condition: Condition,
    ) -> Result<u64, Error> {
        self.ask(&Request::PutFor { table, key, value, condition, ttl_ms }, answers::version).await
    }

    /// Deletes an object. Returns the version of the deletion, or `None` if there was no object.
    ///
    /// # Errors
    /// As [`AsyncClient::put`].
    pub async fn delete(&self, table: u32, key: &[u8]) -> Result<Option<u64>, Error> {
        answers::deletion(self.delete_if(table, key, Condition::Always).await)
    }

    /// Deletes an object if a condition holds. Returns the version of the deletion.
    ///
    /// # Errors
    /// [`Error::ConditionFailed`] with the current version, `NotFound` if there is no object, else as [`AsyncClient::put`].
    pub async fn delete_if(&self, table: u32, key: &[u8], condition: Condition) -> Result<u64, Error> {
        self.ask(&Request::Delete { table, key, condition }, answers::version).await
    }

    /// Adds to the number that an object holds. An absent object counts as 0. Returns sum and version.
    ///
    /// # Errors
    /// As [`AsyncClient::put`]; `NotANumber` and `Overflow` write nothing.
    pub async fn increment(&self, table: u32, key: &[u8], delta: i64) -> Result<(i64, u64), Error> {
        self.ask(&Request::Increment { table, key, delta }, answers::number).await
    }

    /// Adds to an object's floating-point number; an absent object counts as 0. Returns sum and version.
    ///
    /// # Errors
    /// As [`AsyncClient::increment`]; `OutOfRange` if `delta` is not finite.
    pub async fn increment_float(&self, table: u32, key: &[u8], delta: f64) -> Result<(f64, u64), Error> {
        let request = Request::IncrementFloat { table, key, delta_bits: delta.to_bits() };
        self.ask(&request, answers::float).await
    }

    /// Reads the next objects of a range of an ordered table, in key order, as [`Client::scan_page`].
    ///
    /// # Errors
    /// As [`Client::scan_page`].
    pub async fn scan_page(
        &self,
        table: u32,
        range: KeyRange<'_>,
        from: &Cursor,
        size: PageSize,
    ) -> Result<Page, Error> {
        self.ask(&size.scan(table, range, from), Page::scanned).await
    }

    /// Reads the next page of an enumeration, as [`Client::enumerate_page`].
    ///
    /// # Errors
    /// As [`Client::enumerate_page`].
    pub async fn enumerate_page(&self, table: u32, from: &Cursor, size: PageSize) -> Result<Page, Error> {
        self.ask(&size.enumeration(table, from), Page::enumerated).await
    }

    /// Makes a request and decodes its reply.
    async fn ask<T>(
        &self,
        request: &Request<'_>,
        decode: impl FnOnce(Result<&[u8], Error>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.call(request, |status, body| decode(Error::checked(status, body))).await?
    }

    /// Makes a request and passes its reply to `take`, under the lock.
    async fn call<T>(
        &self,
        request: &Request<'_>,
        take: impl FnOnce(Result<Status, Error>, &[u8]) -> T,
    ) -> Result<T, Error> {
        let reply = self.handle.shared.submit_waiting(request, self.durability).await?;
        Ok(reply.take(take).await)
    }

    /// Returns the index of a key's server, if that is known.
    fn server_of(&self, table: u32, key: &[u8]) -> Option<usize> {
        self.handle.shared.state().session.as_mut()?.server_of(table, key)
    }
}

impl ClientPlace {
    fn open(&self) -> Result<Session, Error> {
        Session::open(&self.address, &self.tenant, &self.secret, self.config.clone())
    }
}

/// Runs blocking work on a thread for that.
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
        Err(_) => Err(ended()),
    }
}
