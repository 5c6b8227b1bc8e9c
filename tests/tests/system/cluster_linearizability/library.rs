//! A thread that uses the client library, as programs do, and records what it was told.

use std::sync::atomic::Ordering;
use std::time::Duration;

use client::{Client, ClientConfig, Error, Status};
use fastrand::Rng;
use tests::history::{Action, Condition, Operation, Outcome};

use super::caller::to_wire;
use super::recording::{Town, draw, name};

/// Uses the servers until that is over: what it was told.
pub fn record(town: &Town, number: u32, mut random: Rng) -> Vec<Operation> {
    let mut history: Vec<Operation> = Vec::new();
    let mut client = None;
    let mut value = i64::from(number) << 40;
    while !town.is_over.load(Ordering::Relaxed) {
        let Some(connected) = &mut client else {
            client = connect(town, &mut random);
            continue;
        };
        value += 1 << 16;
        let key = random.u64(0..town.keys);
        let newest = history.iter().rev().take(40).find_map(|operation| match operation.outcome {
            Outcome::Found(version, _) | Outcome::Done(version) if operation.key == key => Some(version),
            _ => None,
        });
        let action = draw(&mut random, newest, value);
        let call = town.now_us();
        let (outcome, end) = match ask(connected, town.table, &name(key), action) {
            Ok(outcome) => (outcome, Some(town.now_us())),
            Err(Error::NotSent) => continue,
            Err(_) => {
                client = None;
                (Outcome::Unknown, None)
            }
        };
        town.told.fetch_add(1, Ordering::Relaxed);
        history.push(Operation { client: number, key, call, end, action, outcome });
    }
    history
}

/// A client that knows any of the servers at first.
fn connect(town: &Town, random: &mut Rng) -> Option<Client> {
    let addresses: Vec<_> = town.servers.values().collect();
    let address = random.choice(addresses)?.to_string();
    let seconds = Duration::from_secs;
    let (call_timeout, connect_timeout) = (seconds(2), seconds(1));
    let config = ClientConfig { call_timeout, connect_timeout, ..ClientConfig::default() };
    Client::connect_with(&address, &town.tenant, &town.secret, config).ok()
}

fn ask(client: &mut Client, table: u32, key: &[u8], action: Action) -> Result<Outcome, Error> {
    let number = |value: &[u8]| i64::from_le_bytes(value.try_into().expect("eight bytes"));
    let ended = match action {
        Action::Get => client.get(table, key).map(|found| {
            found.map_or(Outcome::Nothing, |object| Outcome::Found(object.version, number(&object.value)))
        }),
        Action::Put(value, condition) => {
            client.put_if(table, key, &value.to_le_bytes(), to_wire(condition)).map(Outcome::Done)
        }
        Action::Delete(condition) => client.delete_if(table, key, to_wire(condition)).map(Outcome::Done),
        Action::Add(delta) => {
            client.increment(table, key, delta).map(|(sum, version)| Outcome::Summed(version, sum))
        }
        Action::Lose | Action::Expire(_) => unreachable!("no client asks for that"),
    };
    match ended {
        Err(Error::ConditionFailed { current }) => Ok(Outcome::Refused(current)),
        Err(Error::Refused { status: Status::NotFound, .. })
            if matches!(action, Action::Delete(Condition::Always)) =>
        {
            Ok(Outcome::Nothing)
        }
        ended => ended,
    }
}
