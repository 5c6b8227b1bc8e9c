//! The numbers of a function that was looked up.

use control::FunctionMode;
use wire::Request;

/// The numbers that identify a function in an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Id of the extension.
    pub extension: u32,
    /// Version of the extension; 0 is the current one at each call.
    pub version: u32,
    /// [`wire::function_hash`] of the function's name.
    pub function: u32,
    /// Rights of the function: read or write.
    pub mode: FunctionMode,
}

impl Function {
    /// Returns whether the function only reads, so that it may be called again.
    pub(crate) fn only_reads(&self) -> bool {
        self.mode == FunctionMode::Read
    }

    /// Returns the request that invokes the function.
    #[must_use]
    #[inline]
    pub fn request<'a>(&self, table: u32, key: &'a [u8], arguments: &'a [u8]) -> Request<'a> {
        Request::Invoke {
            extension: self.extension,
            version: self.version,
            function: self.function,
            table,
            key,
            arguments,
        }
    }
}
