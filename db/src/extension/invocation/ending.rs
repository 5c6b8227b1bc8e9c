//! How an invocation ended, as a status and the body that goes with it.

use sandstorm::Error;
use sandstorm::abi::Code;
use store::{CommitError, WriteError};
use wire::Status;

use super::budget::Overdrawn;
use crate::limits::RETRY_BUSY_US;
use crate::ops::transaction::Uncommitted;
use crate::sched::stack::Cause;
use crate::tenant::limit::TenantLimit;

/// What the body of the answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// What the function wrote.
    Reply,
    /// The application's number, then what the function wrote.
    Failure(u32),
    /// The text of the panic.
    LastWords,
    /// What the author says that the function takes.
    Arguments,
    /// A version.
    Version(u64),
    /// Microseconds.
    RetryAfter(u32),
    /// The last words, then the text that says which limit was met.
    Overdrawn(Overdrawn),
    /// The name of a limit of the tenant.
    Limit(TenantLimit),
    /// None.
    Empty,
}

/// Status and body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    status: Status,
    body: Body,
}

impl Ending {
    /// It ended well, and what it wrote to the store is written.
    pub(super) const WELL: Ending = Ending { status: Status::Ok, body: Body::Reply };

    /// A status without a body.
    pub(super) const fn of(status: Status) -> Self {
        Self { status, body: Body::Empty }
    }

    /// The invocation went over a limit.
    pub(super) const fn killed(overdrawn: Overdrawn) -> Self {
        Self { status: Status::ExtensionKilled, body: Body::Overdrawn(overdrawn) }
    }

    /// The same, with the limit that is to be named to the caller.
    #[cold]
    pub(super) const fn naming(self, overdrawn: Overdrawn) -> Self {
        Self { status: self.status, body: Body::Overdrawn(overdrawn) }
    }

    /// The stack was left.
    pub(super) const fn left(cause: Cause) -> Self {
        match cause {
            Cause::Panic => Self { status: Status::ExtensionPanicked, body: Body::LastWords },
            Cause::OutOfMemory => Self { status: Status::ExtensionOutOfMemory, body: Body::LastWords },
            Cause::StackOverflow => Self::of(Status::ExtensionStackOverflow),
            Cause::Abort => Self::of(Status::ExtensionPanicked),
        }
    }

    /// The function returned an error. `version` is what the last failed condition met.
    #[cold]
    pub(super) fn failed(code: Code, version: u64) -> Self {
        let status = match Error::from_code(code) {
            Error::Application(number) => {
                return Self { status: Status::ExtensionError, body: Body::Failure(number) };
            }
            Error::ConditionFailed => {
                return Self { status: Status::ConditionFailed, body: Body::Version(version) };
            }
            Error::BadArguments => return Self { status: Status::Malformed, body: Body::Arguments },
            Error::NotFound => Status::NotFound,
            Error::ReplyTooLarge => Status::ReplyTooLarge,
            Error::KeyTooLarge => Status::KeyTooLarge,
            Error::ValueTooLarge => Status::ValueTooLarge,
            Error::UnknownTable => Status::UnknownTable,
            Error::NotANumber => Status::NotANumber,
            Error::NotOrdered => Status::NotOrdered,
            Error::OutOfRange => Status::OutOfRange,
            Error::CursorInvalid => Status::CursorInvalid,
            Error::NotSerializable => Status::NotSerializable,
            Error::Overflow => Status::Overflow,
            Error::OutOfMemory => Status::OutOfMemory,
            Error::LimitExceeded => Status::LimitExceeded,
            Error::ReadOnly => Status::ReadOnly,
            Error::NotPermitted => Status::NotPermitted,
            Error::Conflict => Status::Conflict,
            Error::NotLocal => Status::NotLocal,
            Error::StackExhausted => Status::ExtensionStackOverflow,
            Error::Unavailable | Error::ServerAway => Status::Unavailable,
            _ => Status::Internal,
        };
        Self::of(status)
    }

    /// It has done nothing, and the same request may be made again after so long.
    #[cold]
    pub(super) const fn come_again(after_us: u32) -> Self {
        Self { status: Status::Retry, body: Body::RetryAfter(after_us) }
    }

    /// The commit was refused for good.
    #[cold]
    pub(super) fn refused(refusal: Uncommitted) -> Self {
        let error = match refusal {
            Uncommitted::Refused(error) => error,
            // It has not run: the same request finds out where it can.
            Uncommitted::Moved => {
                return Self::come_again(RETRY_BUSY_US);
            }
        };
        let status = match error {
            CommitError::Conflict { .. } => Status::Conflict,
            CommitError::TooManyOperations => Status::LimitExceeded,
            CommitError::Write(WriteError::Retry { after_us }) => return Self::come_again(after_us),
            CommitError::Write(WriteError::ConditionFailed { current }) => {
                return Self { status: Status::ConditionFailed, body: Body::Version(current) };
            }
            CommitError::Write(WriteError::NotANumber) => Status::NotANumber,
            CommitError::Write(WriteError::Overflow) => Status::Overflow,
            CommitError::Write(WriteError::OutOfMemory) => Status::OutOfMemory,
            CommitError::Write(WriteError::OverQuota) => {
                let limit = TenantLimit::MemoryBytes;
                return Self { status: Status::OverQuota, body: Body::Limit(limit) };
            }
            CommitError::Write(WriteError::OverBudget) => Status::OverBudget,
            CommitError::Write(WriteError::KeyTooLarge) => Status::KeyTooLarge,
            CommitError::Write(WriteError::ValueTooLarge) => Status::ValueTooLarge,
            CommitError::Write(WriteError::Collisions) => Status::Collisions,
            CommitError::Write(WriteError::TableRetired) => Status::UnknownTable,
            // What it deletes was known when it ran, and is not remembered any more.
            CommitError::Write(WriteError::NotArrived) => return Self::come_again(RETRY_BUSY_US),
        };
        Self::of(status)
    }

    /// The status.
    #[inline]
    pub(super) const fn status(&self) -> Status {
        self.status
    }

    /// What the body is.
    #[inline]
    pub(super) const fn body(&self) -> Body {
        self.body
    }
}
