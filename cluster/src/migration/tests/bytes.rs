//! Tests of the encoding of messages.

use crate::migration::{BadMessage, Copied, Left, Message, PullCursor, PullSpan};

fn messages() -> Vec<Message> {
    let place = PullCursor { hash: 3, second: u64::MAX };
    vec![
        Message::Prepare,
        Message::Prepared { objects: 7 },
        Message::HandOver,
        Message::HandedOver { ceiling: 9 },
        Message::Pull { partition: 7, number: 1, from: None },
        Message::Pull { partition: 0, number: u32::MAX, from: Some(place) },
        Message::Pulled { partition: 1, number: 2, next: Some(place), objects: vec![1, 2, 3] },
        Message::PriorityPull { number: 4, hashes: vec![1, u64::MAX] },
        Message::PriorityPulled { number: 4, count: 2, objects: Vec::new() },
        Message::Discard,
        Message::Discarded,
        Message::GiveBack {
            number: 1,
            is_last: true,
            ceiling: 5,
            objects: vec![8],
            removed: vec![place, place],
        },
        Message::TakenBack { number: 1 },
        Message::Copy,
        Message::Copied(Copied {
            number: 3,
            left: Left::Little,
            is_again: true,
            spans: vec![PullSpan { first: place, last: place }; 2],
            objects: vec![1, 2],
        }),
        Message::Stored { count: 8 },
        Message::Alive,
    ]
}

#[test]
fn a_message_is_read_as_it_was_written() {
    for message in messages() {
        assert_eq!(Message::decode(&message.encode()), Ok(message));
    }
}

#[test]
fn bytes_that_are_no_message_are_refused() {
    for message in messages() {
        let bytes = message.encode();
        for end in 0..bytes.len() {
            // A message that ends with objects may still be valid when cut; it is then a different message.
            let _ = Message::decode(&bytes[..end]);
        }
        assert_eq!(Message::decode(&[0]), Err(BadMessage));
    }
    let many = |count: u32| [&[7, 0, 0, 0, 0][..], &count.to_le_bytes(), &[0; 8 * 257]].concat();
    assert!(
        [0, 16, 256, 257, u32::MAX].into_iter().all(|count| Message::decode(&many(count)) == Err(BadMessage))
    );
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..20_000 {
        let mut bytes = random.choice(messages()).expect("there are some").encode();
        let at = random.usize(0..bytes.len());
        bytes[at] = random.u8(..);
        if let Ok(message) = Message::decode(&bytes) {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
        let length = random.usize(0..64);
        let noise: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
        let _ = Message::decode(&noise);
    }
}
