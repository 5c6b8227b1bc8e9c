//! Frames: what a writer packs, a reader finds; what is not a frame is refused by name.

use crate::{samples, seed};
use wire::limits::{FRAME_BYTES_LIMIT, FRAME_BYTES_MAX};
use wire::{FrameError, FrameReader, FrameWriter};

fn two_groups() -> Vec<u8> {
    let mut buffer = vec![0xee; FRAME_BYTES_MAX];
    let mut writer = FrameWriter::new();
    writer.start(&mut buffer, 77);
    for token in [1, 2] {
        assert!(writer.group(&mut buffer, token, 40 + token, 3));
        for message in 0..token {
            let body = writer.message(&mut buffer, 9, 5, message as u32, 3).expect("it fits");
            body.copy_from_slice(b"abc");
        }
    }
    let frame_bytes = writer.finish(&mut buffer);
    buffer.truncate(frame_bytes);
    buffer
}

#[test]
fn a_reader_finds_what_a_writer_packed() {
    let frame = two_groups();
    assert_eq!(frame.len(), 16 + 2 * 24 + 3 * 11);
    let reader = FrameReader::new(&frame).expect("it was written here");
    assert_eq!(reader.view(), 77);
    let groups: Vec<_> = reader.groups().collect::<Result<_, _>>().expect("it was written here");
    assert_eq!(groups.len(), 2);
    for (group, token) in groups.iter().zip(1..) {
        assert_eq!((group.token, group.first_unacknowledged, group.home_core), (token, 40 + token, 3));
        assert_eq!(u64::from(group.message_count()), token);
        let messages: Vec<_> = group.messages().collect::<Result<_, _>>().expect("it was written here");
        assert_eq!(messages.len() as u64, token);
        for (message, number) in messages.iter().zip(0..) {
            assert_eq!((message.code, message.flags, message.sequence_low), (9, 5, number));
            assert_eq!(message.body, b"abc");
        }
    }
}

#[test]
fn a_frame_that_is_not_ours_is_refused_by_name() {
    let frame = two_groups();
    let broken = |at: usize, byte: u8| {
        let mut frame = frame.clone();
        frame[at] = byte;
        FrameReader::new(&frame).err()
    };
    assert_eq!(broken(0, 0), Some(FrameError::Magic));
    assert_eq!(broken(2, 9), Some(FrameError::Version(9)));
    assert_eq!(broken(3, 4), Some(FrameError::Suite(4)));
    assert_eq!(broken(4, 0), Some(FrameError::Length));
    assert_eq!(FrameReader::new(&[]).err(), Some(FrameError::Length));
    let longer = [frame.as_slice(), &[0]].concat();
    assert_eq!(FrameReader::new(&longer).err(), Some(FrameError::Length));
}

#[test]
fn counts_and_lengths_that_disagree_end_the_iteration_once() {
    // Byte in the frame, new value: group count, bytes and messages of the first group, a message's bytes.
    for (at, byte) in [(6, 1), (6, 3), (32, 23), (32, 255), (34, 0), (34, 2), (40, 7), (40, 12)] {
        let mut frame = two_groups();
        frame[at] = byte;
        let mut errors = 0;
        for group in FrameReader::new(&frame).expect("the header is right").groups() {
            match group {
                Ok(group) => errors += group.messages().filter(Result::is_err).count(),
                Err(_) => errors += 1,
            }
        }
        assert!(errors >= 1, "byte {at} = {byte}");
        assert!(errors <= 2, "one fault in one group: byte {at} = {byte}");
    }
}

#[test]
fn what_does_not_fit_leaves_the_frame_as_it_was() {
    let mut buffer = vec![0; 100];
    let mut writer = FrameWriter::new();
    writer.start(&mut buffer, 0);
    assert!(writer.group(&mut buffer, 1, 1, 0));
    assert_eq!(writer.body_bytes_left(&buffer), Some(52));
    assert!(writer.message(&mut buffer, 1, 0, 1, 53).is_none());
    assert!(writer.message(&mut buffer, 1, 0, 1, usize::MAX).is_none());
    assert!(writer.is_empty());
    assert!(writer.message(&mut buffer, 1, 0, 1, 52).is_some());
    assert_eq!(writer.body_bytes_left(&buffer), None);
    assert!(!writer.group(&mut buffer, 2, 1, 0));
    assert!(writer.message(&mut buffer, 1, 0, 2, 0).is_none());
    assert_eq!(writer.finish(&mut buffer), 100);
    assert_eq!(FrameReader::new(&buffer).expect("it was written here").groups().count(), 1);
}

#[test]
fn groups_without_messages_leave_no_trace() {
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    let mut writer = FrameWriter::new();
    writer.start(&mut buffer, 0);
    assert!(writer.group(&mut buffer, 1, 1, 0));
    assert_eq!(writer.finish(&mut buffer), 0);
    writer.start(&mut buffer, 0);
    assert!(writer.group(&mut buffer, 1, 1, 0));
    assert!(writer.group(&mut buffer, 2, 1, 0));
    assert!(writer.message(&mut buffer, 1, 0, 1, 0).is_some());
    assert!(writer.group(&mut buffer, 3, 1, 0));
    let frame_bytes = writer.finish(&mut buffer);
    assert_eq!(frame_bytes, 16 + 24 + 8);
    let reader = FrameReader::new(&buffer[..frame_bytes]).expect("it was written here");
    let tokens: Vec<_> = reader.groups().map(|group| group.expect("it was written here").token).collect();
    assert_eq!(tokens, [2]);
}

#[test]
fn no_frame_is_longer_than_a_datagram_can_be() {
    let mut buffer = vec![0; 70_000];
    let mut writer = FrameWriter::new();
    writer.start(&mut buffer, 0);
    assert!(writer.group(&mut buffer, 1, 1, 0));
    let most = FRAME_BYTES_LIMIT - 16 - 24 - 8;
    assert_eq!(writer.body_bytes_left(&buffer), Some(most));
    assert!(writer.message(&mut buffer, 1, 0, 1, most + 1).is_none());
    assert!(writer.message(&mut buffer, 1, 0, 1, most).is_some());
    assert_eq!(writer.finish(&mut buffer), FRAME_BYTES_LIMIT);
    assert!(FrameReader::new(&buffer[..FRAME_BYTES_LIMIT]).is_ok());
}

#[test]
fn a_sequence_is_whole_again_from_its_low_half() {
    let mut rng = seed::rng("a_sequence_is_whole_again_from_its_low_half");
    for _ in 0..1_000 {
        let first = rng.u64(..u64::MAX - (1 << 20));
        let sequence = first + rng.u64(..1 << 16);
        let mut buffer = vec![0; 64];
        let mut writer = FrameWriter::new();
        writer.start(&mut buffer, 0);
        assert!(writer.group(&mut buffer, 1, first, 0));
        assert!(writer.message(&mut buffer, 1, 0, sequence as u32, 0).is_some());
        let frame_bytes = writer.finish(&mut buffer);
        let reader = FrameReader::new(&buffer[..frame_bytes]).expect("it was written here");
        let group = reader.groups().next().expect("there is one").expect("it was written here");
        let message = group.messages().next().expect("there is one").expect("it was written here");
        assert_eq!(group.sequence(message.sequence_low), sequence);
    }
}

#[test]
fn random_frames_are_read_to_their_end() {
    let mut rng = seed::rng("random_frames_are_read_to_their_end");
    for _ in 0..500 {
        let frame = samples::frame(&mut rng);
        for group in FrameReader::new(&frame).expect("it was written here").groups() {
            assert!(group.expect("it was written here").messages().all(|message| message.is_ok()));
        }
    }
}
