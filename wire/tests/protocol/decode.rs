//! No bytes make a decoder panic, and what decodes is what would be encoded.

use crate::samples::{self, Material};
use crate::seed;
use wire::{Body, FrameReader, OpenRequest, RecordHeader, Request, Status, VersionRange, reply};

/// Feeds bytes to every decoder; returns how many took them.
fn decode_everything(code: u8, bytes: &[u8]) -> usize {
    read_frame(bytes)
        + check_request(code, bytes)
        + check_replies(bytes)
        + check_opening(code, bytes)
        + check_record(bytes)
}

fn read_frame(bytes: &[u8]) -> usize {
    let Ok(frame) = FrameReader::new(bytes) else { return 0 };
    let mut taken = 0;
    for group in frame.groups() {
        let Ok(group) = group else { continue };
        for message in group.messages() {
            let Ok(message) = message else { continue };
            assert!(message.body.len() < bytes.len());
            group.sequence(message.sequence_low);
            taken += check_request(message.code, message.body);
        }
    }
    taken
}

/// A body that decodes is the only encoding of its request, and within every limit.
fn check_request(code: u8, body: &[u8]) -> usize {
    let Ok(request) = Request::decode(code, body) else { return 0 };
    assert_eq!(request.opcode(), code);
    assert_eq!(request.check(), Ok(()));
    assert_eq!(samples::encode(&request), body);
    1
}

fn check_replies(body: &[u8]) -> usize {
    let mut taken = 0;
    if let Ok(object) = reply::Object::decode(body) {
        assert_eq!(object.body_bytes(), body.len());
        taken += 1;
    }
    if let Ok(objects) = reply::Objects::decode(body) {
        assert_eq!(objects.len(), objects.count());
        taken += 1;
    }
    taken += usize::from(reply::decode_version(body).is_ok());
    taken += usize::from(reply::decode_retry(body).is_ok());
    taken += usize::from(reply::Number::decode(body).is_ok());
    taken + usize::from(reply::ExtensionFailure::decode(body).is_ok())
}

fn check_opening(code: u8, body: &[u8]) -> usize {
    fn same<T: Body>(body: &[u8]) -> usize {
        let Ok(value) = T::decode(body) else { return 0 };
        assert_eq!(value.encode(), body);
        1
    }
    let mut taken = 0;
    if let Ok((version, request)) = OpenRequest::decode(code, body) {
        assert_eq!(request.opcode(), code);
        assert!((VersionRange::OURS.min..=VersionRange::OURS.max).contains(&version));
        taken += 1;
    }
    taken + same::<wire::Opened>(body) + same::<VersionRange>(body) + same::<wire::TabletMap>(body)
}

fn check_record(bytes: &[u8]) -> usize {
    let Ok((header, body)) = RecordHeader::split(bytes) else { return 0 };
    assert_eq!(header.body_bytes as usize, body.len());
    check_request(header.code, body) + usize::from(OpenRequest::decode(header.code, body).is_ok())
}

#[test]
fn random_bytes_never_panic_a_decoder() {
    let mut rng = seed::rng("random_bytes_never_panic_a_decoder");
    for _ in 0..seed::budget(20_000, 3_000_000) {
        let bytes = samples::bytes(&mut rng, 120);
        let code = if rng.bool() { rng.u8(..8) } else { rng.u8(..) };
        decode_everything(code, &bytes);
    }
}

#[test]
fn damaged_frames_never_panic_the_reader() {
    let mut rng = seed::rng("damaged_frames_never_panic_the_reader");
    let mut taken = 0;
    for _ in 0..seed::budget(20_000, 3_000_000) {
        let mut bytes = samples::frame(&mut rng);
        samples::damage(&mut rng, &mut bytes);
        if rng.bool() && bytes.len() >= 6 {
            // A frame whose length is wrong goes no further than the header, so half of them are mended.
            let frame_bytes = bytes.len() as u16;
            bytes[4..6].copy_from_slice(&frame_bytes.to_le_bytes());
        }
        taken += read_frame(&bytes);
    }
    assert!(taken > 1_000, "the damage reaches behind the headers: {taken}");
}

#[test]
fn damaged_bodies_never_panic_a_decoder() {
    let mut rng = seed::rng("damaged_bodies_never_panic_a_decoder");
    let openings = crate::opening::bodies();
    let mut taken = 0;
    for _ in 0..seed::budget(20_000, 3_000_000) {
        let (code, mut bytes) = if rng.bool() {
            let material = Material::new(&mut rng);
            let slices = material.slices();
            let lists = material.lists(&mut rng, &slices);
            let request = material.request(&mut rng, &slices, &lists);
            (request.opcode(), samples::encode(&request))
        } else {
            rng.choice(&openings).expect("there are some").clone()
        };
        samples::damage(&mut rng, &mut bytes);
        taken += decode_everything(code, &bytes);
    }
    assert!(taken > 1_000, "the damage leaves something to decode: {taken}");
}

#[test]
fn every_cut_of_a_request_is_refused_or_means_a_shorter_one() {
    let mut rng = seed::rng("every_cut_of_a_request_is_refused_or_means_a_shorter_one");
    for _ in 0..200 {
        let material = Material::new(&mut rng);
        let slices = material.slices();
        let lists = material.lists(&mut rng, &slices);
        let request = material.request(&mut rng, &slices, &lists);
        let body = samples::encode(&request);
        assert_eq!(Request::decode(request.opcode(), &body), Ok(request));
        for cut in 0..body.len() {
            match Request::decode(request.opcode(), &body[..cut]) {
                Ok(shorter) => assert_ne!(shorter, request),
                Err(status) => assert_eq!(status, Status::Malformed),
            }
        }
    }
}

#[test]
fn every_cut_of_a_frame_is_refused() {
    let mut rng = seed::rng("every_cut_of_a_frame_is_refused");
    let frame = samples::frame(&mut rng);
    for cut in 0..frame.len() {
        assert!(FrameReader::new(&frame[..cut]).is_err());
    }
}
