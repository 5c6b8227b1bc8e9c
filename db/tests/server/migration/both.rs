//! Reads that ask both servers of a cooperative migration, put together by the rule of docs/formats.md.

use wire::reply::{Arrived, Left, Object, StaleRead};
use wire::{Request, Status};

use super::{Table, key};

/// What one of the servers said.
enum Said {
    Known(Option<Vec<u8>>),
    NotArrived(u32),
    Frozen(u32, Option<Vec<u8>>),
    Nothing,
}

impl Table {
    /// What a key holds, if both together know it without waiting.
    pub fn get_of_both(&mut self, number: u64, first: usize) -> Option<Option<Vec<u8>>> {
        let said = [self.ask(number, first), self.ask(number, 1 - first)];
        match said {
            [Said::Known(known), _] | [_, Said::Known(known)] => Some(known),
            [Said::NotArrived(one), Said::Frozen(other, left)]
            | [Said::Frozen(one, left), Said::NotArrived(other)]
                if one == other =>
            {
                self.seen_frozen += 1;
                Some(left)
            }
            _ => None,
        }
    }

    fn ask(&mut self, number: u64, at: usize) -> Said {
        let (status, body) =
            self.clients[at].call(&Request::GetNow { table: self.number, key: &key(number) });
        let value = |object: Object<'_>| object.value.to_vec();
        match status.expect("an answer") {
            Status::Frozen => match StaleRead::decode(&body).expect("as it left") {
                StaleRead { migration, left: Left::Object(object) } => {
                    Said::Frozen(migration, Some(value(object)))
                }
                StaleRead { migration, left: Left::Absent } => Said::Frozen(migration, None),
                StaleRead { left: Left::Untold, .. } => Said::Nothing,
            },
            Status::NotOwned => Said::Nothing,
            status => {
                let (_, rest) = Arrived::split(&body).expect("what has arrived comes first");
                match status {
                    Status::Ok => Said::Known(Some(value(Object::decode(rest).expect("an object")))),
                    Status::NotFound => Said::Known(None),
                    Status::NotArrived => {
                        Said::NotArrived(u32::from_le_bytes(rest.try_into().expect("a number")))
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}
