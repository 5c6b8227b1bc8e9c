//! Streams are few here, and everybody wants one: strangers get those that nobody else wants, tenants as many as they
//! may, and an operator always one.

use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use control::{AdminRequest, TableOptions, TenantCreated, TenantEntry};
use db::config::StreamLimits;
use wire::{Body, OpenRequest, Opened, Request, Status};

use super::Site;
use super::client::{Client, ControlStream, Refused};

const STREAMS: StreamLimits = StreamLimits { places: 8, of_tenant: 3, reserve: 2 };

/// Long enough for whatever ends at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// As many silent connections as there are places, and as many again.
fn strangers(site: &Site) -> Vec<TcpStream> {
    (0..2 * STREAMS.places).map(|_| TcpStream::connect(site.server.tcp()).expect("a listener")).collect()
}

fn is_closed(mut stranger: TcpStream) -> bool {
    stranger.set_read_timeout(Some(PATIENCE)).expect("a working socket");
    stranger.read(&mut [0]).is_ok_and(|bytes| bytes == 0)
}

fn open(site: &Site, tenant: &str, secret: &str) -> Result<(ControlStream, Opened), Refused> {
    let request = OpenRequest::Session { tenant, secret };
    let (stream, answer) = ControlStream::open(site.server.tcp(), &request)?;
    Ok((stream, Opened::decode(&answer).expect("an opened session")))
}

/// Opens until it is let in: the server notices at its leisure that a stream has ended.
fn open_again(site: &Site, tenant: &str, secret: &str) -> (ControlStream, Opened) {
    loop {
        match open(site, tenant, secret) {
            Ok(opened) => return opened,
            Err((status, _)) => assert_eq!(status, Status::LimitExceeded),
        }
    }
}

fn is_full(refused: Result<(ControlStream, Opened), Refused>, whose: &str) {
    let (status, text) = refused.err().expect("there is no place");
    assert_eq!(status, Status::LimitExceeded);
    let text = String::from_utf8(text).expect("text");
    assert!(text.starts_with(whose), "{text}");
}

fn serves(client: &mut Client, table: u32) {
    assert_eq!(client.status(&Request::Get { table, key: b"k" }), Status::NotFound);
}

#[test]
fn strangers_that_hold_every_place_keep_nobody_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_crowded(directory.path(), STREAMS);
    let secret = site.create_tenant("ann");
    let mut silent = strangers(&site);
    let mut first = Client::open(&site, "ann", &secret).expect("the right secret");
    silent.extend(strangers(&site));
    let table = first.create_table("t");
    let mut administrator = site.administrator();
    silent.extend(strangers(&site));
    let mut second = Client::open(&site, "ann", &secret).expect("the right secret");
    silent.extend(strangers(&site));
    administrator.ask(&AdminRequest::TenantCreate { name: "bob" }).expect("a fresh name");
    for client in [&mut first, &mut second] {
        serves(client, table);
        client.control.ask(&AdminRequest::TableStat { name: "t" }).expect("the stream was left in peace");
    }
    // Those that could not stay were closed, and the oldest first.
    silent.truncate(silent.len() - STREAMS.places);
    assert!(silent.into_iter().all(is_closed));
}

#[test]
fn wrong_secrets_hold_no_place() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_crowded(directory.path(), STREAMS);
    let secret = site.create_tenant("ann");
    for _ in 0..4 * STREAMS.places {
        let (status, _) = open(&site, "ann", "guessed").err().expect("a wrong secret");
        assert!(matches!(status, Status::BadSecret | Status::Retry), "{status:?}");
    }
    open(&site, "ann", &secret).expect("the right secret");
}

#[test]
fn a_tenant_with_as_many_streams_as_it_may_is_told_so_and_disturbs_nobody() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_crowded(directory.path(), STREAMS);
    let (ann, bob) = (site.create_tenant("ann"), site.create_tenant("bob"));
    let mut held: Vec<_> =
        (0..STREAMS.of_tenant).map(|_| open(&site, "ann", &ann).expect("a place")).collect();
    let token = held[0].1.token;
    for _ in 0..2 * STREAMS.places {
        is_full(open(&site, "ann", &ann), "the tenant has reached its stream limit");
        let attached = ControlStream::open(site.server.tcp(), &OpenRequest::Attach { token });
        let (status, _) = attached.err().expect("there is no place");
        assert_eq!(status, Status::LimitExceeded, "nor for a further stream of a session");
    }
    let (mut other, _) = open(&site, "bob", &bob).expect("a place of its own");
    other
        .ask(&AdminRequest::TableCreate { name: "t", options: TableOptions::default() })
        .expect("a fresh name");
    for (stream, _) in &mut held {
        stream.ask(&AdminRequest::TableList).expect("the stream was left in peace");
    }
    let list = site.administrator().ask(&AdminRequest::TenantList).expect("a list");
    let list = control::decode::<Vec<TenantEntry>>(&list).expect("entries");
    let sessions: Vec<u32> = list.iter().map(|entry| entry.sessions).collect();
    assert_eq!(sessions, [STREAMS.of_tenant as u32, 1], "a refusal leaves no session behind");
    // One ends, one comes.
    for _ in 0..2 * STREAMS.places {
        held.remove(0);
        held.push(open_again(&site, "ann", &ann));
    }
}

#[test]
fn an_operator_gets_in_whatever_tenants_and_strangers_hold() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_crowded(directory.path(), STREAMS);
    let names = ["ann", "bob", "carl"];
    let mut operators = vec![site.administrator()];
    let secrets = names.map(|name| {
        let answer = operators[0].ask(&AdminRequest::TenantCreate { name }).expect("a fresh name");
        control::decode::<TenantCreated>(&answer).expect("a secret").secret
    });
    let mut held = Vec::new();
    for index in 0..STREAMS.places - STREAMS.reserve {
        let _silent = strangers(&site);
        let (name, secret) = (names[index % 2], &secrets[index % 2]);
        held.push(open(&site, name, secret).expect("a place"));
    }
    // Who has less gets places of those with most, until all have as many.
    let _of_carl = [(); 2].map(|()| open(&site, "carl", &secrets[2]).expect("a place of another tenant"));
    is_full(open(&site, "carl", &secrets[2]), "the server has reached its stream limit for tenants");
    let silent = strangers(&site);
    operators.extend((1..STREAMS.reserve).map(|_| site.administrator()));
    for operator in &mut operators {
        operator.ask(&AdminRequest::TenantList).expect("a list");
    }
    // Now all places are held by who opened something.
    assert!(silent.into_iter().all(is_closed));
    let mut turned_away = ControlStream::connect(site.server.tcp());
    let (header, _) = turned_away.read().expect("an answer");
    assert_eq!(Status::from_u8(header.code), Some(Status::LimitExceeded));
    drop(operators.pop());
    drop(held.pop());
    open_again(&site, "carl", &secrets[2]);
}
