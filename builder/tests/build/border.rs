//! The border of `sandstorm`, from the same text as the SDK, so that the builder needs no dependency on it.
#![allow(dead_code, reason = "the tests use a part of the border")]

#[path = "../../../sandstorm/src/abi.rs"]
mod abi;

pub use abi::ABI_VERSION;
pub use abi::Artefact;
pub use abi::CURSOR_BYTES_MAX;
pub use abi::Call;
pub use abi::Code;
pub use abi::Function;
pub use abi::Host;
pub use abi::OK;
pub use abi::PENDING;
pub use abi::RawCondition;
pub use abi::RawEntry;
pub use abi::RawListed;
pub use abi::RawRange;
pub use abi::RawRecord;
pub use abi::RawReply;
pub use abi::RawScanned;
pub use abi::RawSlice;
pub use abi::Services;
