//! Fuzzes the decoding of frames, data requests, replies and openings.
//!
//! No bytes make a decoder panic. A request has one encoding, so a decoded one encodes to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{
    Body, FrameReader, LoggedReply, OpenRequest, Opened, RecordHeader, Request, TabletMap, VersionRange,
    reply,
};

fn request(code: u8, body: &[u8]) {
    let Ok(request) = Request::decode(code, body) else { return };
    assert_eq!(request.check(), Ok(()), "decoded, so valid");
    let mut again = vec![0; request.body_bytes()];
    request.encode(&mut again);
    assert_eq!(again, body);
}

fn frame(bytes: &[u8]) {
    let Ok(frame) = FrameReader::new(bytes) else { return };
    for group in frame.groups().flatten() {
        for message in group.messages().flatten() {
            request(message.code, message.body);
        }
    }
}

fn body<T: Body>(bytes: &[u8]) {
    if let Ok(value) = T::decode(bytes) {
        assert_eq!(value.encode(), bytes);
    }
}

fuzz_target!(|bytes: &[u8]| {
    frame(bytes);
    if let Ok((header, rest)) = RecordHeader::split(bytes) {
        request(header.code, rest);
    }
    if let Some((&code, rest)) = bytes.split_first() {
        request(code, rest);
        let _ = OpenRequest::decode(code, rest);
    }
    body::<Opened>(bytes);
    body::<Vec<LoggedReply>>(bytes);
    body::<TabletMap>(bytes);
    body::<VersionRange>(bytes);
    let _ = reply::Object::decode(bytes);
    let _ = reply::Objects::decode(bytes).map(Iterator::count);
    let _ = reply::Number::decode(bytes);
    let _ = reply::ExtensionFailure::decode(bytes);
    let _ = reply::PushedBack::decode(bytes).map(|body| body.records().count());
});
