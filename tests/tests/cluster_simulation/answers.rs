//! What clients of the simulated cluster ask for in the form of requests, and what answers say in that of a history.

use tests::history::{Action, Condition, Outcome};
use wire::Status;
use wire::reply::{self, Number, Object, Objects};

/// A condition as requests have it.
pub fn to_wire(condition: Condition) -> wire::Condition {
    match condition {
        Condition::Always => wire::Condition::Always,
        Condition::Absent => wire::Condition::Absent,
        Condition::Present => wire::Condition::Present,
        Condition::Version(version) => wire::Condition::Version(version),
    }
}

fn number(value: &[u8]) -> i64 {
    i64::from_le_bytes(value.try_into().expect("eight bytes"))
}

/// What an answer says; `None`: nothing of how it ended.
pub fn outcome(action: Action, status: Status, body: &[u8]) -> Option<Outcome> {
    Some(match (status, action) {
        (Status::Ok, Action::Get) => {
            let object = Object::decode(body).expect("an object");
            Outcome::Found(object.version, number(object.value))
        }
        (Status::Ok, Action::Add(_)) => {
            let told = Number::decode(body).expect("a number");
            Outcome::Summed(told.version, told.value)
        }
        (Status::Ok, _) => Outcome::Done(reply::decode_version(body).expect("a version")),
        (Status::NotFound, _) => Outcome::Nothing,
        (Status::ConditionFailed, _) => Outcome::Refused(reply::decode_version(body).expect("a version")),
        (Status::BadToken, _) => return None,
        (status, action) => panic!("{status:?} to {action:?}"),
    })
}

/// What an answer says of several keys.
pub fn outcomes(body: &[u8]) -> impl Iterator<Item = Outcome> {
    Objects::decode(body).expect("objects").map(|entry| match entry.status {
        Status::Ok => Outcome::Found(entry.version, number(entry.value)),
        Status::NotFound => Outcome::Nothing,
        status => panic!("{status:?} of a key"),
    })
}
