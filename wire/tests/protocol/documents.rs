//! docs/formats.md says what the code does.

use crate::opening;
use wire::Status;
use wire::limits::{FRAME_HEADER_BYTES, GROUP_HEADER_BYTES, MESSAGE_HEADER_BYTES, RECORD_HEADER_BYTES};

const FORMATS: &str = include_str!("../../../docs/formats.md");

#[test]
fn every_status_stands_in_the_documents_as_it_is() {
    for status in Status::ALL {
        let row = format!("| {} | `{}` | {} |", *status as u8, status.name(), status.text());
        assert!(FORMATS.lines().any(|line| line == row), "{row}");
    }
}

#[test]
fn every_opening_stands_in_the_documents_under_its_opcode() {
    for request in opening::open_requests() {
        let row = format!("| {} ", request.opcode());
        assert!(FORMATS.lines().any(|line| line.starts_with(&row)), "{row}");
    }
}

#[test]
fn the_headers_are_as_long_as_their_tables() {
    let mut tables = FORMATS.split("\n| ").filter_map(|row| {
        let (place, rest) = row.split_once(" | ")?;
        let offset: usize = place.split(' ').next()?.parse().ok()?;
        Some(offset + rest.split(' ').next()?.parse::<usize>().ok()?)
    });
    for header_bytes in [FRAME_HEADER_BYTES, GROUP_HEADER_BYTES, MESSAGE_HEADER_BYTES, RECORD_HEADER_BYTES] {
        assert!(tables.any(|end| end == header_bytes), "a header of {header_bytes} bytes");
    }
}
