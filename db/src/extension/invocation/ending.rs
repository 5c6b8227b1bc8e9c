//! The outcome of an invocation, as a status and the body of the reply.

use guest::border;
use guest::stack::Cause;
use sandstorm::Error;
use sandstorm::abi::Code;
use store::{CommitError, WriteError};
use wire::Status;

use crate::extension::allowance::Overdrawn;
use crate::extension::instances::NoInstance;
use crate::limits::RETRY_BUSY_US;
use crate::ops::transaction::Uncommitted;
use crate::tenant::limit::TenantLimit;

/// The kind of body in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// The function's reply.
    Reply,
    /// The application's error number, then the function's reply.
    Failure(u32),
    /// The text of the panic.
    LastWords,
    /// The author's description of the function's arguments.
    Arguments,
    /// A version.
    Version(u64),
    /// Microseconds.
    RetryAfter(u32),
    /// The last words, then the text that names the reached limit.
    Overdrawn(Overdrawn),
    /// The name of a tenant's limit.
    Limit(TenantLimit),
    /// This many bytes that the server wrote over the reply: the version, and what was read.
    PushedBack(u16),
    /// The text about a version without a module.
    NoModule,
    /// The text about a code that is none of the SDK's.
    UnknownCode(Code),
    /// No body.
    Empty,
}

/// The status and the kind of body of a finished invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    status: Status,
    body: Body,
}

impl Ending {
    /// Success; its writes are committed.
    pub(super) const WELL: Ending = Ending { status: Status::Ok, body: Body::Reply };

    /// Creates an ending without a body.
    pub(super) const fn of(status: Status) -> Self {
        Self { status, body: Body::Empty }
    }

    /// Creates the ending of an invocation that exceeded a limit.
    pub(super) const fn killed(overdrawn: Overdrawn) -> Self {
        Self { status: Status::ExtensionKilled, body: Body::Overdrawn(overdrawn) }
    }

    /// Creates the ending of an invocation that its client is to run; the body has this many bytes.
    #[cold]
    pub(super) const fn pushed_back(bytes: u16) -> Self {
        Self { status: Status::PushedBack, body: Body::PushedBack(bytes) }
    }

    /// Adds the limit to be named to the caller.
    #[cold]
    pub(super) const fn naming(self, overdrawn: Overdrawn) -> Self {
        Self { status: self.status, body: Body::Overdrawn(overdrawn) }
    }

    /// Creates the ending of an invocation whose stack was left.
    pub(super) const fn left(cause: Cause) -> Self {
        match cause {
            Cause::Panic => Self { status: Status::ExtensionPanicked, body: Body::LastWords },
            Cause::OutOfMemory => Self { status: Status::ExtensionOutOfMemory, body: Body::LastWords },
            Cause::StackOverflow => Self::of(Status::ExtensionStackOverflow),
            Cause::Abort | Cause::WrongCode => Self::of(Status::ExtensionPanicked),
        }
    }

    /// Creates the ending of a function that returned an error. `version` is the one found by the last failed
    /// condition.
    #[cold]
    pub(super) fn failed(code: Code, version: u64) -> Self {
        let error = Error::from_code(code);
        // No host call returns an unknown code, so the fault is the function's alone.
        let unknown = Self { status: Status::ExtensionPanicked, body: Body::UnknownCode(code) };
        let Some(status) = border::status_of(error) else { return unknown };
        let body = match error {
            Error::Application(number) => Body::Failure(number),
            Error::ConditionFailed => Body::Version(version),
            Error::BadArguments => Body::Arguments,
            _ => Body::Empty,
        };
        Self { status, body }
    }

    /// Creates the ending of an invocation that did nothing; the same request may be repeated after `after_us`
    /// microseconds.
    #[cold]
    pub(super) const fn come_again(after_us: u32) -> Self {
        Self { status: Status::Retry, body: Body::RetryAfter(after_us) }
    }

    /// Creates the ending of an invocation that got no instance of its module, and so has not run.
    #[cold]
    pub(super) const fn without_instance(reason: NoInstance) -> Self {
        match reason {
            NoInstance::NoRoom => Self::come_again(RETRY_BUSY_US),
            NoInstance::NoModule => Self { status: Status::Unavailable, body: Body::NoModule },
        }
    }

    /// Creates the ending of a commit that was refused permanently.
    #[cold]
    pub(super) fn refused(refusal: Uncommitted) -> Self {
        let error = match refusal {
            Uncommitted::Refused(error) => error,
            // It has not run: the same request finds out where it can.
            Uncommitted::Moved => {
                return Self::come_again(RETRY_BUSY_US);
            }
            Uncommitted::NotDurable => return Self::of(Status::NotDurable),
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
            CommitError::Write(WriteError::StorageFull) => Status::StorageFull,
            CommitError::Write(WriteError::StorageFailed) => Status::StorageFailed,
            // The object to delete was known when the function ran, and is no longer remembered.
            CommitError::Write(WriteError::NotArrived) => return Self::come_again(RETRY_BUSY_US),
        };
        Self::of(status)
    }

    /// Returns the status.
    #[inline]
    pub(super) const fn status(&self) -> Status {
        self.status
    }

    /// Returns the kind of body.
    #[inline]
    pub(super) const fn body(&self) -> Body {
        self.body
    }
}
