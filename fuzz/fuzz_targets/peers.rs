//! Fuzzes the decoding of messages between servers.
//!
//! No bytes make a decoder panic, and a decoded message survives another round trip.
#![no_main]

use cluster::migration::Message;
use cluster::remote::message::{Answers, Questions};
use cluster::replication::fetch::{FromHolder, ToHolder};
use cluster::replication::message::{FromBackup, ToBackup};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = Message::decode(bytes) {
        assert_eq!(Message::decode(&message.encode()), Ok(message));
    }
    if let Ok((questions, for_disk)) = Questions::decode(bytes) {
        let mut again = Questions::new(for_disk);
        questions.iter().for_each(|question| again.push(question));
        assert_eq!(Questions::decode(again.bytes()), Ok((questions, for_disk)));
    }
    if let Ok(answers) = Answers::decode(bytes) {
        let mut again = Answers::new();
        answers.iter().for_each(|(number, reply)| again.push(*number, *reply));
        assert_eq!(Answers::decode(again.bytes()), Ok(answers));
    }
    if let Ok(message) = ToBackup::decode(bytes) {
        assert_eq!(ToBackup::decode(&message.encode()), Ok(message));
    }
    if let Ok(answer) = FromBackup::decode(bytes) {
        assert_eq!(FromBackup::decode(&answer.encode()), Ok(answer));
    }
    if let Ok(question) = ToHolder::decode(bytes) {
        assert_eq!(ToHolder::decode(&question.encode()), Ok(question));
    }
    if let Ok(answer) = FromHolder::decode(bytes) {
        assert_eq!(FromHolder::decode(&answer.encode()), Ok(answer));
    }
});
