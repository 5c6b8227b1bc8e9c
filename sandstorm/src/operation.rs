//! The futures behind [`Db`](crate::Db): small structs whose poll is one host call.
//!
//! A future keeps a ticket, 0 until the host returns "pending" and stores its own number there. Polling a future again
//! after it was ready restarts the operation; forgetting one is harmless, because the host owns its own state. The
//! waker of a poll is ignored: the host identifies the invocation.
//!
//! Pointers given to the host are valid only during the call.

use core::future::Future;
use core::mem::MaybeUninit;
use core::pin::Pin;
use core::task::Context;
use core::task::Poll;

use crate::Condition;
use crate::Db;
use crate::Error;
use crate::Record;
use crate::Table;
use crate::abi::Code;
use crate::abi::OK;
use crate::abi::PENDING;
use crate::abi::RawRecord;
use crate::abi::RawSlice;
use crate::abi::TTL_FOREVER;
use crate::abi::TTL_MS_MAX;

/// Keys per host call of [`Db::get_many`]: enough to overlap memory accesses, with little stack.
const CHUNK_KEYS: usize = 32;

/// Converts a host's result to a poll; resets the ticket of a finished operation.
#[inline]
pub(crate) fn poll_of(code: Code, ticket: &mut u64) -> Poll<Result<(), Error>> {
    if code == PENDING {
        return Poll::Pending;
    }
    *ticket = 0;
    if code == OK { Poll::Ready(Ok(())) } else { Poll::Ready(Err(Error::from_code(code))) }
}

/// Future of [`Db::get`].
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` them"]
pub struct Get<'f, 'a>(pub(crate) GetRecord<'f, 'a>);

impl<'a> Future for Get<'_, 'a> {
    type Output = Result<Option<&'a [u8]>, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map_ok(|record| record.map(|record| record.value))
    }
}

/// Future of [`Db::get_record`].
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` them"]
pub struct GetRecord<'f, 'a> {
    pub(crate) db: &'f Db<'a>,
    pub(crate) table: Table,
    pub(crate) key: &'f [u8],
    pub(crate) ticket: u64,
}

impl<'a> Future for GetRecord<'_, 'a> {
    type Output = Result<Option<Record<'a>>, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut raw = MaybeUninit::<RawRecord>::uninit();
        // SAFETY: the Db's creator allows the call; the key lives during it.
        let code = unsafe {
            (this.db.host().get)(
                this.db.context(),
                &mut this.ticket,
                this.table.id(),
                RawSlice::of(this.key),
                raw.as_mut_ptr(),
            )
        };
        // SAFETY: a host that returns OK has filled the record with a value lent for 'a.
        poll_of(code, &mut this.ticket).map_ok(|()| unsafe { Record::from_raw(raw.assume_init()) })
    }
}

/// Future of [`Db::get_many`].
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` them"]
pub struct GetMany<'f, 'a> {
    pub(crate) db: &'f Db<'a>,
    pub(crate) table: Table,
    pub(crate) keys: &'f [&'f [u8]],
    pub(crate) records: &'f mut [Option<Record<'a>>],
    pub(crate) done: usize,
    pub(crate) ticket: u64,
}

impl Future for GetMany<'_, '_> {
    type Output = Result<(), Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.keys.len() != this.records.len() {
            return Poll::Ready(Err(Error::BadArguments));
        }
        while this.done < this.keys.len() {
            match this.poll_chunk() {
                Poll::Ready(Ok(())) => {}
                other => return other,
            }
        }
        this.done = 0;
        Poll::Ready(Ok(()))
    }
}

impl GetMany<'_, '_> {
    /// Reads the next [`CHUNK_KEYS`] keys and advances `done`.
    fn poll_chunk(&mut self) -> Poll<Result<(), Error>> {
        let keys = &self.keys[self.done..];
        let keys = &keys[..keys.len().min(CHUNK_KEYS)];
        let mut raw_keys = [const { MaybeUninit::<RawSlice>::uninit() }; CHUNK_KEYS];
        for (raw, key) in raw_keys.iter_mut().zip(keys) {
            raw.write(RawSlice::of(key));
        }
        let mut raw_records = [const { MaybeUninit::<RawRecord>::uninit() }; CHUNK_KEYS];
        // SAFETY: the Db's creator allows the call; the first keys.len() keys were written, and both arrays and the
        // keys live during the call. MaybeUninit<T> has the layout of T.
        let code = unsafe {
            (self.db.host().get_many)(
                self.db.context(),
                &mut self.ticket,
                self.table.id(),
                raw_keys.as_ptr().cast(),
                keys.len(),
                raw_records.as_mut_ptr().cast(),
            )
        };
        let answer = poll_of(code, &mut self.ticket);
        if matches!(answer, Poll::Ready(Ok(()))) {
            let records = &mut self.records[self.done..];
            for (record, raw) in records.iter_mut().zip(&raw_records[..keys.len()]) {
                // SAFETY: a host that returns OK has filled the first keys.len() records with values lent for 'a.
                *record = unsafe { Record::from_raw(raw.assume_init()) };
            }
            self.done += keys.len();
        }
        answer
    }
}

/// Future of [`Db::put`] and [`Db::put_if`].
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` them"]
pub struct Put<'f, 'a> {
    pub(crate) db: &'f Db<'a>,
    pub(crate) table: Table,
    pub(crate) key: &'f [u8],
    pub(crate) value: &'f [u8],
    pub(crate) condition: Condition,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) ticket: u64,
}

impl Put<'_, '_> {
    /// Sets the time to live in milliseconds, after which the object is absent. 0 and more than 139 years fail with
    /// [`Error::OutOfRange`].
    #[inline]
    pub fn for_ms(mut self, ttl_ms: u64) -> Self {
        self.ttl_ms = Some(ttl_ms);
        self
    }
}

impl Future for Put<'_, '_> {
    type Output = Result<(), Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let ttl_ms = match this.ttl_ms {
            None => TTL_FOREVER,
            Some(ttl_ms @ 1..=TTL_MS_MAX) => ttl_ms,
            Some(_) => return Poll::Ready(Err(Error::OutOfRange)),
        };
        // SAFETY: the Db's creator allows the call; key and value live during it.
        let code = unsafe {
            (this.db.host().put)(
                this.db.context(),
                &mut this.ticket,
                this.table.id(),
                RawSlice::of(this.key),
                RawSlice::of(this.value),
                this.condition.raw(),
                ttl_ms,
            )
        };
        poll_of(code, &mut this.ticket)
    }
}

/// Future of [`Db::delete`] and [`Db::delete_if`].
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` them"]
pub struct Delete<'f, 'a> {
    pub(crate) db: &'f Db<'a>,
    pub(crate) table: Table,
    pub(crate) key: &'f [u8],
    pub(crate) condition: Condition,
    pub(crate) ticket: u64,
}

impl Future for Delete<'_, '_> {
    type Output = Result<(), Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // SAFETY: the Db's creator allows the call; the key lives during it.
        let code = unsafe {
            (this.db.host().delete)(
                this.db.context(),
                &mut this.ticket,
                this.table.id(),
                RawSlice::of(this.key),
                this.condition.raw(),
            )
        };
        poll_of(code, &mut this.ticket)
    }
}

/// Future of [`Db::increment`].
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` them"]
pub struct Increment<'f, 'a> {
    pub(crate) db: &'f Db<'a>,
    pub(crate) table: Table,
    pub(crate) key: &'f [u8],
    pub(crate) delta: i64,
    pub(crate) ticket: u64,
}

impl Future for Increment<'_, '_> {
    type Output = Result<i64, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut value = 0;
        // SAFETY: the Db's creator allows the call; the key lives during it.
        let code = unsafe {
            (this.db.host().increment)(
                this.db.context(),
                &mut this.ticket,
                this.table.id(),
                RawSlice::of(this.key),
                this.delta,
                &mut value,
            )
        };
        poll_of(code, &mut this.ticket).map_ok(|()| value)
    }
}

/// Future of [`Db::increment_float`].
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` them"]
pub struct IncrementFloat<'f, 'a> {
    pub(crate) db: &'f Db<'a>,
    pub(crate) table: Table,
    pub(crate) key: &'f [u8],
    pub(crate) delta: f64,
    pub(crate) ticket: u64,
}

impl Future for IncrementFloat<'_, '_> {
    type Output = Result<f64, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if !this.delta.is_finite() {
            return Poll::Ready(Err(Error::OutOfRange));
        }
        let mut value = 0.0;
        // SAFETY: the Db's creator allows the call; the key lives during it.
        let code = unsafe {
            (this.db.host().increment_float)(
                this.db.context(),
                &mut this.ticket,
                this.table.id(),
                RawSlice::of(this.key),
                this.delta,
                &mut value,
            )
        };
        poll_of(code, &mut this.ticket).map_ok(|()| value)
    }
}

/// Future of [`Db::table`].
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` them"]
pub struct FindTable<'f, 'a> {
    pub(crate) db: &'f Db<'a>,
    pub(crate) name: &'f str,
    pub(crate) ticket: u64,
}

impl Future for FindTable<'_, '_> {
    type Output = Result<Table, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut id = 0;
        let name = RawSlice::of(this.name.as_bytes());
        // SAFETY: the Db's creator allows the call; the name lives during it.
        let code = unsafe { (this.db.host().table)(this.db.context(), &mut this.ticket, name, &mut id) };
        poll_of(code, &mut this.ticket).map_ok(|()| Table::from_id(id))
    }
}

/// Future of [`Db::yield_now`].
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` them"]
pub struct YieldNow {
    pub(crate) yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        self.yielded = !self.yielded;
        if self.yielded { Poll::Pending } else { Poll::Ready(()) }
    }
}
