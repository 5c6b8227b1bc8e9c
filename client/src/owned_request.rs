//! An encoded copy of a request, for the time that it spends outside a session's window.

use wire::{Accepted, Journey, Request, Status};

/// An encoded request, with its tag and journey.
pub(crate) struct OwnedRequest {
    pub(crate) tag: u64,
    pub(crate) journey: Journey,
    pub(crate) code: u8,
    pub(crate) body: Vec<u8>,
}

impl OwnedRequest {
    /// Returns the encoded request.
    pub(crate) fn new(tag: u64, journey: Journey, request: &Request<'_>) -> OwnedRequest {
        let mut body = vec![0; request.body_bytes()];
        request.encode(&mut body);
        OwnedRequest { tag, journey, code: request.opcode(), body }
    }

    /// Returns a copy of a request in the window.
    pub(crate) fn of(accepted: &Accepted<'_>) -> OwnedRequest {
        let Accepted { tag, journey, code, body, .. } = *accepted;
        OwnedRequest { tag, journey, code, body: body.to_vec() }
    }

    /// Decodes the request. Fails only for one that this client did not encode.
    pub(crate) fn decode(&self) -> Result<Request<'_>, Status> {
        Request::decode(self.code, &self.body)
    }
}
