//! `splinter table alter`: changes a table's durability. One request that may take long, so a second connection asks
//! meanwhile how far the server is.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use client::{Client, Durability, Owners};
use serde_json::json;

use crate::archive;
use crate::failure::Failure;
use crate::output::Answer;
use crate::settings::Settings;

/// Interval at which the bar is renewed; a shorter change needs none.
const LOOK: Duration = Duration::from_millis(300);

/// Changes the durability of a table, with a bar of the bytes that are rewritten.
pub fn alter(
    settings: &Settings,
    client: Client,
    name: &str,
    durability: Durability,
) -> Result<Answer, Failure> {
    let mut owners = Owners::of(client);
    let (sender, is_over) = channel();
    thread::scope(|scope| {
        if io::stderr().is_terminal() {
            scope.spawn(move || show(settings, name, &is_over));
        }
        let altered = owners.table_alter(name, durability);
        drop::<std::sync::mpsc::Sender<()>>(sender);
        altered.map_err(|(server, error)| match server {
            None => Failure::from(error),
            Some(number) => Failure::from(error).after(format!(
                "the durability of {name} is {}, but server {number} has not confirmed that its disk has what was written \
                 there before; repeat this",
                durability.name()
            )),
        })
    })?;
    let text = format!("the durability of {name} is {}", durability.name());
    Ok(Answer::new(text, json!({ "table": name, "durability": durability.name() })))
}

/// Shows how far a rewriting is until it is over, or until nobody tells.
fn show(settings: &Settings, name: &str, is_over: &Receiver<()>) {
    let goes_on = || is_over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout);
    if !goes_on() {
        return;
    }
    let Ok(mut client) = settings.connect() else { return };
    let bar = archive::bar(0);
    bar.set_message("rewriting");
    while let Ok(found) = client.table_stat(name) {
        bar.set_length(found.bytes);
        bar.set_position(found.rewritten_bytes.unwrap_or(found.bytes));
        if !goes_on() {
            break;
        }
    }
    bar.finish_and_clear();
}
