//! What the bytes of a message cost: packing requests into a frame, and reading them back.
//!
//! Figures are per frame as large as an Ethernet allows, filled with gets of 30-byte keys or with their
//! replies of 100-byte values; Criterion's throughput is messages a second.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use wire::limits::FRAME_BYTES_MAX;
use wire::{FrameReader, FrameWriter, Request, Status, reply};

/// Packs messages into a frame; returns its length and their number.
fn pack(
    buffer: &mut [u8],
    code: u8,
    body_bytes: impl Fn() -> usize,
    encode: impl Fn(&mut [u8]),
) -> (usize, u64) {
    let mut writer = FrameWriter::new();
    writer.start(buffer, 1);
    assert!(writer.group(buffer, 7, 1, 0));
    let mut messages = 0;
    while let Some(body) = writer.message(buffer, code, 0, messages as u32, body_bytes()) {
        encode(body);
        messages += 1;
    }
    (writer.finish(buffer), messages)
}

fn pack_gets(buffer: &mut [u8]) -> (usize, u64) {
    let get = Request::Get { table: 1, key: b"user00000000000000000000000007" };
    pack(buffer, get.opcode(), || black_box(&get).body_bytes(), |body| get.encode(body))
}

fn pack_replies(buffer: &mut [u8]) -> (usize, u64) {
    let object = reply::Object { version: 9, ttl_ms: None, value: &[b'a'; 100] };
    pack(buffer, Status::Ok as u8, || black_box(&object).body_bytes(), |body| object.encode(body))
}

fn frames(criterion: &mut Criterion) {
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    let mut group = criterion.benchmark_group("wire");
    let (frame_bytes, messages) = pack_gets(&mut buffer);
    let gets = buffer[..frame_bytes].to_vec();
    group.throughput(Throughput::Elements(messages));
    group.bench_function("encode a frame of gets", |bencher| bencher.iter(|| pack_gets(&mut buffer)));
    group.bench_function("decode a frame of gets", |bencher| {
        bencher.iter(|| {
            let mut key_bytes = 0;
            for part in FrameReader::new(black_box(&gets)).unwrap().groups() {
                for message in part.unwrap().messages() {
                    let message = message.unwrap();
                    match Request::decode(message.code, message.body).unwrap() {
                        Request::Get { key, .. } => key_bytes += key.len(),
                        other => panic!("a get became {other:?}"),
                    }
                }
            }
            key_bytes
        });
    });

    let (frame_bytes, messages) = pack_replies(&mut buffer);
    let replies = buffer[..frame_bytes].to_vec();
    group.throughput(Throughput::Elements(messages));
    group.bench_function("encode a frame of replies", |bencher| bencher.iter(|| pack_replies(&mut buffer)));
    group.bench_function("decode a frame of replies", |bencher| {
        bencher.iter(|| {
            let mut value_bytes = 0;
            for part in FrameReader::new(black_box(&replies)).unwrap().groups() {
                for message in part.unwrap().messages() {
                    value_bytes += reply::Object::decode(message.unwrap().body).unwrap().value.len();
                }
            }
            value_bytes
        });
    });
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    frames(&mut criterion);
    criterion.final_summary();
}
