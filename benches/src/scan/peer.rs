//! Redis as it is scanned: `ZRANGEBYLEX` over connections of one thread, answers taken apart and checked.
//!
//! The thread looks at all connections in turn and never sleeps while scans are outstanding, as that of our own load
//! does. Commands that a connection may send are written in one call.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use super::{Scans, shuffled};
use crate::dataset::Dataset;
use crate::drive::{ns_since, take_turns};
use crate::measure::Measure;

/// The sorted set.
const SET: &str = "splinter-bench-scan";
/// Members of one `ZADD` while loading.
const MEMBERS_AT_ONCE: u64 = 256;
/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;

/// A scan that is under way.
struct PendingScan {
    sent_ns: u64,
    /// Its first key.
    from: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    unsent: Vec<u8>,
    /// What has arrived of answers that are not whole, up to `filled`.
    received: Vec<u8>,
    filled: usize,
    pending: VecDeque<PendingScan>,
}

/// Connections with scans under way.
pub(super) struct Peer {
    connections: Vec<Connection>,
    outstanding: usize,
    scans: Scans,
    start: Instant,
    /// First keys of scans that have ended, to be used again.
    spare: Vec<Vec<u8>>,
}

impl Peer {
    /// Connects as many clients.
    pub(super) fn connect(
        address: SocketAddr,
        clients: usize,
        outstanding: usize,
        scans: Scans,
    ) -> Result<Self, String> {
        let connections = (0..clients).map(|_| Connection::open(address)).collect::<Result<_, _>>();
        let connections = connections.map_err(lost)?;
        Ok(Self { connections, outstanding, scans, start: Instant::now(), spare: Vec::new() })
    }

    /// Scans for so many seconds; how many they were.
    pub(super) fn until(&mut self, seconds: f64, measure: &mut Measure) -> Result<f64, String> {
        let began = Instant::now();
        take_turns(began, (seconds * 1e9) as u64, |_| {
            let mut answers = 0;
            for number in 0..self.connections.len() {
                self.ask(number).map_err(lost)?;
                answers += self.take(number, measure)?;
            }
            Ok(answers)
        })?;
        Ok(began.elapsed().as_secs_f64())
    }

    /// Sends what a connection may have outstanding.
    fn ask(&mut self, number: usize) -> io::Result<()> {
        let Self { connections, scans, start, spare, .. } = self;
        let connection = &mut connections[number];
        if connection.pending.len() == self.outstanding && connection.unsent.is_empty() {
            return Ok(());
        }
        let sent_ns = ns_since(*start);
        let records = scans.records().to_string();
        while connection.pending.len() < self.outstanding {
            let (_, key) = scans.draw();
            let mut from = spare.pop().unwrap_or_default();
            from.clear();
            from.extend_from_slice(key);
            let out = &mut connection.unsent;
            command(out, 7);
            bulk(out, &[b"ZRANGEBYLEX"]);
            bulk(out, &[SET.as_bytes()]);
            bulk(out, &[b"[", key]);
            [&b"+"[..], b"LIMIT", b"0", records.as_bytes()].iter().for_each(|word| bulk(out, &[word]));
            connection.pending.push_back(PendingScan { sent_ns, from });
        }
        connection.send()
    }

    /// Takes what has arrived at a connection; the number of answers.
    fn take(&mut self, number: usize, measure: &mut Measure) -> Result<usize, String> {
        let (records, record_bytes) = (self.scans.records(), self.scans.record_bytes());
        let connection = &mut self.connections[number];
        if connection.receive().map_err(lost)? == 0 {
            return Ok(0);
        }
        let now_ns = ns_since(self.start);
        let (mut at, mut answers) = (0, 0);
        while let Some(answer) = answer_in(&connection.received[at..connection.filled])? {
            at += answer.bytes;
            answers += 1;
            let Some(PendingScan { sent_ns, from }) = connection.pending.pop_front() else {
                return Err("Redis answered what nobody had asked".into());
            };
            let right = answer.members == records
                && answer.member_bytes == records * record_bytes
                && connection.received[at - answer.bytes..at][answer.first..].starts_with(&from);
            match right {
                true => measure.answered(now_ns - sent_ns, records as u64),
                false => return Err("Redis gave a wrong answer to a scan".into()),
            }
            self.spare.push(from);
        }
        connection.received.copy_within(at..connection.filled, 0);
        connection.filled -= at;
        Ok(answers)
    }
}

impl Connection {
    fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, unsent: Vec::new(), received: Vec::new(), filled: 0, pending: VecDeque::new() })
    }

    /// Writes as much as the socket takes.
    fn send(&mut self) -> io::Result<()> {
        match self.stream.write(&self.unsent) {
            Ok(written) => drop(self.unsent.drain(..written)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads what there is; the number of bytes.
    fn receive(&mut self) -> io::Result<usize> {
        if self.received.len() < self.filled + READ_BYTES {
            self.received.resize(self.filled + READ_BYTES, 0);
        }
        match self.stream.read(&mut self.received[self.filled..]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => {
                self.filled += bytes;
                Ok(bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error),
        }
    }
}

/// An answer that has arrived whole.
#[derive(Debug, PartialEq)]
struct Answer {
    bytes: usize,
    members: usize,
    member_bytes: usize,
    /// Where the first member begins.
    first: usize,
}

/// The first answer of `bytes`, an array of strings; `None` while it is not whole.
fn answer_in(bytes: &[u8]) -> Result<Option<Answer>, String> {
    let Some((members, mut at)) = number_in(bytes, b'*')? else { return Ok(None) };
    let (mut member_bytes, mut first) = (0, 0);
    for member in 0..members {
        let Some((length, head)) = number_in(&bytes[at..], b'$')? else { return Ok(None) };
        if member == 0 {
            first = at + head;
        }
        at += head + length + 2;
        if at > bytes.len() {
            return Ok(None);
        }
        member_bytes += length;
    }
    Ok(Some(Answer { bytes: at, members, member_bytes, first }))
}

/// The number of a line that begins with `kind`, and the length of the line.
fn number_in(bytes: &[u8], kind: u8) -> Result<Option<(usize, usize)>, String> {
    let mut number = 0usize;
    for (at, &byte) in bytes.iter().enumerate().take(24) {
        match byte {
            _ if at == 0 && byte != kind => {
                return Err(format!(
                    "Redis said: {}",
                    String::from_utf8_lossy(&bytes[..bytes.len().min(80)])
                ));
            }
            _ if at == 0 => {}
            b'0'..=b'9' => number = number.saturating_mul(10).saturating_add(usize::from(byte - b'0')),
            b'\r' => return Ok((bytes.len() > at + 1).then_some((number, at + 2))),
            _ => return Err("Redis sent a length that is none".into()),
        }
    }
    Ok(None)
}

fn command(out: &mut Vec<u8>, words: usize) {
    out.extend_from_slice(format!("*{words}\r\n").as_bytes());
}

/// One word of a command, given in parts.
fn bulk(out: &mut Vec<u8>, parts: &[&[u8]]) {
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(format!("${bytes}\r\n").as_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out.extend_from_slice(b"\r\n");
}

fn lost(error: io::Error) -> String {
    format!("Redis is lost: {error}")
}

/// Loads the data as members of the sorted set, which is dropped before.
pub(super) fn load(address: SocketAddr, data: &mut Dataset) -> Result<(), String> {
    let began = Instant::now();
    let mut stream = TcpStream::connect(address).map_err(lost)?;
    let mut out = Vec::new();
    command(&mut out, 2);
    bulk(&mut out, &[b"DEL"]);
    bulk(&mut out, &[SET.as_bytes()]);
    ask_for_number(&mut stream, &mut out)?;
    let keys = data.keys();
    for first in (0..keys).step_by(MEMBERS_AT_ONCE as usize) {
        let turns = first..keys.min(first + MEMBERS_AT_ONCE);
        let count = turns.end - turns.start;
        command(&mut out, 2 + 2 * count as usize);
        bulk(&mut out, &[b"ZADD"]);
        bulk(&mut out, &[SET.as_bytes()]);
        for turn in turns {
            let (key, value) = data.object(shuffled(turn, keys));
            bulk(&mut out, &[b"0"]);
            bulk(&mut out, &[key, value]);
        }
        if ask_for_number(&mut stream, &mut out)? != count {
            return Err("Redis did not take all members".into());
        }
    }
    eprintln!("loaded {keys} members into Redis in {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// Sends a command whose answer is a number.
fn ask_for_number(stream: &mut TcpStream, command: &mut Vec<u8>) -> Result<u64, String> {
    stream.write_all(command).map_err(lost)?;
    command.clear();
    let (mut answer, mut filled) = ([0; 512], 0);
    loop {
        if let Some((number, _)) = number_in(&answer[..filled], b':')? {
            return Ok(number as u64);
        }
        match stream.read(&mut answer[filled..]).map_err(lost)? {
            0 => return Err("Redis has closed the connection".into()),
            bytes => filled += bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, answer_in};

    #[test]
    fn an_answer_is_taken_when_it_is_whole() {
        let text = b"*2\r\n$3\r\nabc\r\n$10\r\n0123456789\r\n*0\r\n";
        let whole = Answer { bytes: text.len() - 4, members: 2, member_bytes: 13, first: 8 };
        for bytes in 0..whole.bytes {
            assert_eq!(answer_in(&text[..bytes]), Ok(None), "{bytes} bytes");
        }
        assert_eq!(answer_in(text), Ok(Some(whole)));
        assert!(answer_in(b"-ERR no\r\n").is_err());
    }
}
