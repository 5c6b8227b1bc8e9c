//! The servers that an archive, or a check of the log, is read from: in a cluster each that owns some of the tenant's keys.
//!
//! Each says which positions it owned at its cut. Together they must have every position of each table once, else tablets
//! have moved in between, and all begin anew.

use crate::failure::{Failure, FailureKind};
use client::{Admin, ArchiveBegun, ArchivePiece, ArchivedSource, Error, Owners, Status};
use indicatif::ProgressBar;
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

/// Times that archives are begun while tablets move.
const BEGINNINGS_MAX: u32 = 20;
/// Pause before they are begun anew.
const PAUSE: Duration = Duration::from_millis(250);
/// Interval at which a server that is read is asked again meanwhile: its archive ends after five minutes without one.
const LOOK: Duration = Duration::from_secs(10);

/// A connection of one who may read a tenant's log; in a cluster the tenant's reaches each server.
pub enum Source {
    Own(Box<Owners>),
    Any(Box<Admin>),
}

/// A server, with what it has begun.
pub struct Server {
    /// As [`Owners::at`] takes it; empty of the one that was asked first.
    pub address: String,
    pub begun: ArchiveBegun,
}

/// What was read of a server.
#[derive(Clone, Copy)]
struct Reading {
    /// The number of the latest piece, and when it was read.
    number: u32,
    at: Instant,
    is_last: bool,
    done_bytes: u64,
    all_bytes: u64,
}

/// What is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Content {
    Keys,
    Objects,
    /// Keys, but for what is damaged.
    Check,
}

impl Source {
    /// Begins at each server, the one that is connected first.
    pub fn begin(&mut self, tenant: &str) -> Result<Vec<Server>, Failure> {
        for _ in 0..BEGINNINGS_MAX {
            let mut servers = Vec::new();
            let begun = self.begin_at_all(&mut servers, tenant);
            if begun.is_ok() && (servers[0].begun.server == 0 || is_whole(&servers)) {
                return Ok(servers);
            }
            // What remains ends by itself.
            let _ = self.end(&servers);
            match begun {
                // Tablets came or left meanwhile.
                Err((_, error)) if error.status() == Some(Status::WrongTablets) => {}
                Err((None, error)) => return Err(error.into()),
                Err((Some(number), error)) => {
                    return Err(Failure::from(error).after(format!("server {number}")));
                }
                Ok(()) if matches!(self, Source::Any(_)) => {
                    let number = servers[0].begun.server;
                    let what = format!("server {number} has only a part of the tables of tenant {tenant}");
                    return Err(Failure::new(FailureKind::Refused, what)
                        .next("give the tenant's own secret, with which all servers of a cluster are read"));
                }
                Ok(()) => {}
            }
            thread::sleep(PAUSE);
        }
        let what = "the servers do not agree on who owns which tablets of the tenant";
        Err(Failure::new(FailureKind::Condition, what)
            .next("repeat it when `splinter cluster migrations` is empty"))
    }

    /// Adds the servers at which it has begun. An error has the number of the server, unless it is the connected one's.
    fn begin_at_all(&mut self, servers: &mut Vec<Server>, tenant: &str) -> Result<(), (Option<u32>, Error)> {
        let first = self.begin_at("", tenant).map_err(|error| (None, error))?;
        let (own, tables) = (first.begun.server, first.begun.tables.iter().map(|table| table.id));
        let tables: Vec<_> = tables.collect();
        servers.push(first);
        let others = match self {
            Source::Own(owners) if own > 0 => owners.servers_of(&tables).map_err(|error| (None, error))?,
            _ => BTreeMap::new(),
        };
        for (number, address) in others.into_iter().filter(|(number, _)| *number != own) {
            let begun = self.begin_at(&address, tenant);
            servers.push(begun.map_err(|error| (Some(number), error))?);
        }
        Ok(())
    }

    fn begin_at(&mut self, address: &str, tenant: &str) -> Result<Server, Error> {
        let begun = match self {
            Source::Own(owners) => owners.at(address)?.archive_begin(),
            Source::Any(admin) => admin.archive_begin(tenant),
        };
        Ok(Server { address: address.to_owned(), begun: begun? })
    }

    /// Reads all pieces, one of each server in turn, and the last one again of those that wait for others: so that none ends
    /// because nobody reads it.
    pub fn read_all(
        &mut self,
        servers: &[Server],
        content: Content,
        bar: &ProgressBar,
        mut take: impl FnMut(usize, &ArchivePiece) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        bar.set_message(match content {
            Content::Keys => "keys",
            Content::Objects => "objects",
            Content::Check => "log",
        });
        let none = Reading { number: 0, is_last: false, done_bytes: 0, all_bytes: 0, at: Instant::now() };
        let mut progress = vec![none; servers.len()];
        for number in 0.. {
            for (at, server) in servers.iter().enumerate() {
                let read = progress[at];
                if read.is_last {
                    continue;
                }
                let piece = self.read(server, number, content)?;
                // An archive reads twice.
                let (before_bytes, all_bytes) = match content {
                    Content::Keys => (0, 2 * piece.all_bytes),
                    Content::Objects => (piece.all_bytes, 2 * piece.all_bytes),
                    Content::Check => (0, piece.all_bytes),
                };
                let done_bytes = before_bytes + piece.done_bytes;
                let (is_last, now) = (piece.is_last, Instant::now());
                progress[at] = Reading { number, is_last, done_bytes, all_bytes, at: now };
                bar.set_length(progress.iter().map(|read| read.all_bytes).sum());
                bar.set_position(progress.iter().map(|read| read.done_bytes).sum());
                // Stores a file, perhaps.
                take(at, &piece)?;
                self.keep(servers, &mut progress, content)?;
            }
            if progress.iter().all(|read| read.is_last) {
                break;
            }
        }
        Ok(())
    }

    /// Reads the last piece again of those that were not read for a while.
    fn keep(
        &mut self,
        servers: &[Server],
        progress: &mut [Reading],
        content: Content,
    ) -> Result<(), Failure> {
        for (server, read) in servers.iter().zip(progress).filter(|(_, read)| read.at.elapsed() > LOOK) {
            self.read(server, read.number, content)?;
            read.at = Instant::now();
        }
        Ok(())
    }

    fn read(&mut self, server: &Server, piece: u32, content: Content) -> Result<ArchivePiece, Error> {
        let (id, keys_only) = (server.begun.id, content == Content::Keys);
        match self {
            Source::Own(owners) if content == Content::Check => {
                owners.at(&server.address)?.archive_check(id, piece)
            }
            Source::Own(owners) => owners.at(&server.address)?.archive_read(id, piece, keys_only),
            Source::Any(admin) => admin.archive_read(id, piece, keys_only),
        }
    }

    /// Reads the source of an extension's version from the server that was asked first. The others are read a little, so that
    /// theirs do not end meanwhile.
    pub fn source(
        &mut self,
        servers: &[Server],
        extension: &str,
        version: u32,
    ) -> Result<ArchivedSource, Error> {
        for other in &servers[1..] {
            self.read(other, 0, Content::Keys)?;
        }
        let server = &servers[0];
        let id = server.begun.id;
        match self {
            Source::Own(owners) => owners.at(&server.address)?.archive_source(id, extension, version),
            Source::Any(admin) => admin.archive_source(id, extension, version),
        }
    }

    /// Ends what was begun at the servers; returns the first error. One that has ended by itself since it was read is none.
    pub fn end(&mut self, servers: &[Server]) -> Result<(), Error> {
        let mut ended = Ok(());
        for Server { address, begun } in servers {
            let at_server = match self {
                Source::Own(owners) => owners.at(address).and_then(|client| client.archive_end(begun.id)),
                Source::Any(admin) => admin.archive_end(begun.id),
            };
            match at_server {
                Err(error) if error.status() == Some(Status::NotFound) => {}
                at_server => ended = ended.and(at_server),
            }
        }
        ended
    }
}

/// Returns whether the servers know the same tables, and own each position of each table once.
fn is_whole(servers: &[Server]) -> bool {
    let tables = &servers[0].begun.tables;
    let is_same = |server: &Server| {
        let same = |(one, other): (&client::ArchivedTable, &client::ArchivedTable)| one.id == other.id;
        server.begun.tables.len() == tables.len() && server.begun.tables.iter().zip(tables).all(same)
    };
    let is_owned = |table: u32| {
        let owned = servers.iter().flat_map(|server| &server.begun.owned);
        let mut ranges: Vec<_> =
            owned.filter(|owned| owned.table == table).map(|it| (it.first, it.last)).collect();
        ranges.sort_unstable();
        let follows = |pair: &[(u64, u64)]| pair[0].1.checked_add(1) == Some(pair[1].0);
        ranges.first().is_some_and(|first| first.0 == 0)
            && ranges.last().is_some_and(|last| last.1 == u64::MAX)
            && ranges.windows(2).all(follows)
    };
    servers.iter().all(is_same) && tables.iter().all(|table| is_owned(table.id))
}

#[cfg(test)]
mod tests {
    use super::{Server, is_whole};
    use client::{ArchiveBegun, ArchivedTable, OwnedPositions, TableOptions};

    fn server(tables: &[u32], owned: &[(u32, u64, u64)]) -> Server {
        let table = |&id: &u32| ArchivedTable {
            id,
            name: format!("t{id}"),
            options: TableOptions::default(),
            tablets: 1,
        };
        let owned = owned.iter().map(|&(table, first, last)| OwnedPositions { table, first, last });
        let begun = ArchiveBegun {
            id: 1,
            tenant: "acme".into(),
            cut: 1,
            clock_ms: 1,
            tables: tables.iter().map(table).collect(),
            left_out: Vec::new(),
            extensions: Vec::new(),
            limits: Vec::new(),
            grants: Vec::new(),
            server: 1,
            owned: owned.collect(),
        };
        Server { address: String::new(), begun }
    }

    #[test]
    fn servers_have_a_table_if_they_own_each_position_once() {
        const END: u64 = u64::MAX;
        let whole = |owned: &[&[(u32, u64, u64)]]| {
            is_whole(&owned.iter().map(|owned| server(&[7], owned)).collect::<Vec<_>>())
        };
        assert!(whole(&[&[(7, 0, END)]]));
        assert!(whole(&[&[(7, 0, 9), (7, 30, END)], &[(7, 10, 29)]]));
        assert!(whole(&[&[], &[(7, 0, END)]]));
        assert!(!whole(&[&[], &[]]));
        assert!(!whole(&[&[(7, 0, 9)], &[(7, 11, END)]]), "one is missing");
        assert!(!whole(&[&[(7, 0, 9)], &[(7, 9, END)]]), "one is there twice");
        assert!(!whole(&[&[(7, 0, END)], &[(7, 0, END)]]));
        assert!(!whole(&[&[(7, 1, END)]]) && !whole(&[&[(7, 0, END - 1)]]) && !whole(&[&[(8, 0, END)]]));
        let one_more = server(&[7, 8], &[(7, 0, 9), (8, 0, END)]);
        assert!(
            !is_whole(&[server(&[7], &[(7, 10, END)]), one_more]),
            "a table that the first does not know"
        );
    }
}
