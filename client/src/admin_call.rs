//! An administrative request on its way over a stream, and the decoding of its reply.

use std::time::Duration;

use control::{AdminRequest, DeserializeOwned};
use wire::Status;

use crate::{ClientConfig, Error};

/// An encoded administrative request, and the rules for sending it.
pub(crate) struct AdminCall {
    pub(crate) body: Vec<u8>,
    /// The request only reads: it is repeated if the stream breaks.
    pub(crate) is_repeatable: bool,
    /// Maximum time to wait for the reply.
    pub(crate) timeout: Duration,
}

impl AdminCall {
    /// Encodes a request.
    pub(crate) fn new(request: &AdminRequest<'_>, config: &ClientConfig) -> Result<AdminCall, Error> {
        let body = request.encode().map_err(|status| Error::Refused { status, text: String::new() })?;
        let timeout = match request {
            AdminRequest::ExtensionInstall { .. } => config.install_timeout,
            AdminRequest::TableAlter { .. } => config.alter_timeout,
            _ => config.admin_timeout,
        };
        Ok(AdminCall { body, is_repeatable: request.only_reads(), timeout })
    }
}

/// Decodes the reply to an administrative request.
pub(crate) fn decode_answer<T: DeserializeOwned>((status, body): (Status, Vec<u8>)) -> Result<T, Error> {
    if status != Status::Ok {
        return Err(Error::of_answer(status, &body));
    }
    control::decode(&body).map_err(|_| Error::Unintelligible { expected: "an answer to the request" })
}
