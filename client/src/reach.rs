//! Connecting to one server of a list: the first that admits the client.
//!
//! A list is `HOST:PORT,HOST:PORT`, the preferred address first. The next one is tried when those before it have failed
//! or have not answered for [`NEXT_ADDRESS_AFTER`], since a connection to a dead machine takes long to fail. Each
//! attempt has a thread; once one succeeds, the others continue unattended and end any session that they open. A
//! refusal, such as that of a wrong secret, is an answer: no further server is tried.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Instant;

use wire::Status;

use crate::config::resolve;
use crate::connection::{Connection, Opening, opened_of};
use crate::limits::{ADDRESSES_MAX, NEXT_ADDRESS_AFTER};
use crate::{ClientConfig, Error};

/// An open connection.
pub(crate) struct Reached {
    pub(crate) server: SocketAddr,
    /// The server's address as the caller gave it.
    pub(crate) address: String,
    pub(crate) connection: Connection,
    pub(crate) answer: Vec<u8>,
}

/// The index of an address and the outcome of its attempt.
type Attempt = (usize, Result<Reached, Error>);

/// Opens a connection to one of these addresses.
pub(crate) fn reach(addresses: &str, opening: &Opening, config: &ClientConfig) -> Result<Reached, Error> {
    let listed: Vec<&str> = addresses.split(',').map(str::trim).collect();
    match listed[..] {
        [address] => open(address, opening, config),
        _ if listed.len() > ADDRESSES_MAX => Err(Error::AddressInvalid {
            address: addresses.to_owned(),
            error: io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("more than {ADDRESSES_MAX} addresses"),
            ),
        }),
        _ => reach_any(&listed, opening, config),
    }
}

fn reach_any(addresses: &[&str], opening: &Opening, config: &ClientConfig) -> Result<Reached, Error> {
    let (sender, answers) = channel();
    let mut errors: Vec<Option<Error>> = addresses.iter().map(|_| None).collect();
    let (mut begun, mut ended, mut next_at) = (0, 0, Instant::now());
    loop {
        let is_refused = errors.iter().flatten().any(is_answer);
        let is_due = begun == ended || Instant::now() >= next_at;
        if begun < addresses.len() && !is_refused && is_due {
            let attempt = (begun, addresses[begun].to_owned(), opening.clone(), config.clone());
            if let Err(error) = begin(attempt, sender.clone()) {
                errors[begun] = Some(Error::Port { error });
                ended += 1;
            }
            begun += 1;
            next_at = Instant::now() + NEXT_ADDRESS_AFTER;
        }
        if begun == ended {
            return Err(why(addresses, errors));
        }
        let is_last = is_refused || begun == addresses.len();
        let attempt = if is_last {
            // Each started thread reports, within the time of a connection and its opening.
            answers.recv().ok()
        } else {
            answers.recv_timeout(next_at.saturating_duration_since(Instant::now())).ok()
        };
        match attempt {
            Some((_, Ok(reached))) => return Ok(reached),
            Some((index, Err(error))) => {
                errors[index] = Some(error);
                ended += 1;
            }
            None => {}
        }
    }
}

/// Starts a thread that tries an address.
fn begin(
    (index, address, opening, config): (usize, String, Opening, ClientConfig),
    sender: Sender<Attempt>,
) -> io::Result<()> {
    let attempt = move || {
        let attempt = (index, open(&address, &opening, &config));
        if let Err(unwanted) = sender.send(attempt)
            && let (_, Ok(mut reached)) = unwanted.0
            && let Ok(opened) = opened_of(&reached.answer)
        {
            reached.connection.end_session(opened.client_id);
        }
    };
    thread::Builder::new().name("reach".to_owned()).spawn(attempt).map(drop)
}

fn open(address: &str, opening: &Opening, config: &ClientConfig) -> Result<Reached, Error> {
    let server = resolve(address)?;
    let (connection, answer) = Connection::open(server, config, opening.request())?;
    Ok(Reached { server, address: address.to_owned(), connection, answer })
}

/// Returns whether the error is an answer that another server would repeat.
fn is_answer(error: &Error) -> bool {
    matches!(error, Error::Refused { status, .. } if *status != Status::Unavailable)
}

/// Combines the errors. The result is a refusal, or else the outcome of each attempt.
fn why(addresses: &[&str], errors: Vec<Option<Error>>) -> Error {
    let mut errors: Vec<Error> = errors.into_iter().flatten().collect();
    if let Some(answer) = errors.iter().position(|error| matches!(error, Error::Refused { .. })) {
        return errors.swap_remove(answer);
    }
    let others = addresses.iter().zip(&errors).skip(1).filter_map(|(address, error)| match error {
        Error::Unreachable { error, .. } | Error::AddressInvalid { error, .. } => {
            Some(format!("; {address}: {error}"))
        }
        _ => None,
    });
    let others: String = others.collect();
    let with = |error: io::Error| io::Error::new(error.kind(), format!("{error}{others}"));
    match errors.swap_remove(0) {
        Error::Unreachable { address, error } => Error::Unreachable { address, error: with(error) },
        Error::AddressInvalid { address, error } => Error::AddressInvalid { address, error: with(error) },
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::{Opening, reach};
    use crate::limits::ADDRESSES_MAX;
    use crate::{ClientConfig, Error};

    fn error_of(addresses: &str) -> Error {
        let opening = Opening::Admin { secret: "s".into() };
        reach(addresses, &opening, &ClientConfig::default()).err().expect("nobody listens there")
    }

    #[test]
    fn of_a_list_it_is_said_what_became_of_each() {
        let error = error_of("127.0.0.1:1, 127.0.0.1:2,not an address");
        assert!(matches!(error, Error::Unreachable { address, .. } if address.port() == 1));
        let said = error.to_string();
        assert!(said.contains("127.0.0.1:1") && said.contains("; 127.0.0.1:2: "), "{said}");
        assert!(said.contains("; not an address: "), "{said}");
    }

    #[test]
    fn a_list_that_is_too_long_or_has_a_gap_is_no_address() {
        let long = vec!["127.0.0.1:1"; ADDRESSES_MAX + 1].join(",");
        for wrong in ["", ",", &long] {
            assert!(matches!(error_of(wrong), Error::AddressInvalid { .. }), "{wrong}");
        }
    }
}
