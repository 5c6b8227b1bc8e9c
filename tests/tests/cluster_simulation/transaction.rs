//! Transactions of a client of the simulated cluster: each reads some lists with one request, of those that one server has, and
//! commits that its number is appended to some of them.

use std::mem;

use tests::serializability::{Fate, Number, Observed};
use wire::reply::Objects;
use wire::{Changes, CommitRead, CommitWrite, CompletionError, Keys, Request, Requester, Status};

use super::{Caller, Stage, Wish};

/// Numbers up to which a list is appended to: some of that length fit one frame.
const LIST_LENGTH_MAX: usize = 80;

/// A transaction that has not ended.
pub struct Transaction {
    seen: Observed,
    /// The versions of what it has read, in the order of its lists.
    versions: Vec<u64>,
    is_committing: bool,
}

impl Transaction {
    fn submit(
        &self,
        requester: &mut Requester,
        (now_us, tag): (u64, u64),
        table: u32,
        (lists, is_careless): (&[(Number, &[u8])], bool),
    ) -> bool {
        let keys: Vec<&[u8]> = lists.iter().map(|(_, key)| *key).collect();
        if !self.is_committing {
            let keys = Keys::from_slices(&keys);
            return requester.submit(now_us, tag, &Request::MultiGet { table, keys }).is_ok();
        }
        let checked = keys.iter().zip(&self.versions);
        let mut reads: Vec<_> =
            checked.map(|(key, version)| CommitRead { table, key, version: *version }).collect();
        if is_careless && !self.seen.appends.is_empty() {
            reads.clear();
        }
        let appended = lists.iter().filter(|(list, _)| self.seen.appends.contains(list));
        let values: Vec<(&[u8], Vec<u8>)> = appended
            .map(|(list, key)| {
                let numbers = self.seen.reads[list].iter().chain([&self.seen.number]);
                (*key, numbers.flat_map(|number| (*number as u32).to_le_bytes()).collect())
            })
            .collect();
        let write = |(key, value)| CommitWrite { table, key, value: Some(value), ttl_ms: None };
        let writes: Vec<_> = values.iter().map(|(key, value)| write((*key, &value[..]))).collect();
        let changes = Changes::listed(&reads, &[], &writes);
        requester.submit(now_us, tag, &Request::Commit { changes }).is_ok()
    }

    /// Takes what it has read, in the order of its lists.
    fn take_reads(&mut self, lists: &[Number], body: &[u8]) {
        let objects = Objects::decode(body).expect("objects");
        for (list, object) in lists.iter().zip(objects) {
            assert!(matches!(object.status, Status::Ok | Status::NotFound), "{:?} of a list", object.status);
            let (numbers, rest) = object.value.as_chunks();
            assert!(rest.is_empty(), "a list of whole numbers");
            let numbers = numbers.iter().map(|number| u64::from(u32::from_le_bytes(*number)));
            self.seen.reads.insert(*list, numbers.collect());
            self.versions.push(object.version);
        }
        let reads = &self.seen.reads;
        self.seen.appends.retain(|list| reads.get(list).is_some_and(|read| read.len() < LIST_LENGTH_MAX));
        self.is_committing = true;
    }
}

impl Caller {
    /// Begins a transaction on lists, given with their keys. Of what it is to append to, it appends to what it has read.
    #[allow(dead_code, reason = "what real servers do with transactions is recorded elsewhere")]
    pub fn begin_transaction(&mut self, seen: Observed, mut lists: Vec<(Number, Vec<u8>)>) {
        let (list, key) = lists.remove(0);
        self.begin(super::read_of(list, seen.begun), key);
        self.beside = lists;
        self.transaction = Some(Transaction { seen, versions: Vec::new(), is_committing: false });
    }

    /// Whether a transaction has read what it commits, all of it at one server.
    pub fn is_committing(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.is_committing)
    }

    /// Makes the request of the transaction at a server, if there is one: whether that has room for it.
    pub fn ask_transaction(&mut self, now_us: u64, server: u32) -> Option<bool> {
        let transaction = self.transaction.as_ref()?;
        let (operation, key) = self.operation.as_ref().expect("there is one");
        let beside = self.beside.iter().map(|(list, key)| (*list, &key[..]));
        let lists: Vec<(Number, &[u8])> = [(operation.key, &key[..])].into_iter().chain(beside).collect();
        let link = self.links.get_mut(&server).expect("it is there");
        let at = (now_us, self.attempt);
        Some(transaction.submit(&mut link.requester, at, self.table, (&lists, self.is_careless)))
    }

    /// Takes what a server has said to the transaction, other than that it does not own the lists.
    pub fn hear_of_transaction(
        &mut self,
        now_us: u64,
        status: Result<Status, CompletionError>,
        body: &[u8],
        wishes: &mut Vec<Wish>,
    ) {
        let (operation, _) = self.operation.as_ref().expect("it was asked");
        let lists: Vec<Number> =
            [operation.key].into_iter().chain(self.beside.iter().map(|it| it.0)).collect();
        let fate = match (status, self.transaction.as_mut()) {
            (Ok(Status::Ok), Some(transaction)) if !transaction.is_committing => {
                transaction.take_reads(&lists, body);
                self.stage = Stage::Lost;
                return;
            }
            (Ok(Status::Ok), _) => Fate::Committed,
            (Ok(Status::Conflict | Status::NotLocal) | Err(CompletionError::NotSent), _) => Fate::Aborted,
            (Ok(Status::BadToken) | Err(_), Some(transaction)) if transaction.is_committing => Fate::Unknown,
            (Ok(Status::BadToken) | Err(_), _) => Fate::Aborted,
            (Ok(status), _) => panic!("{status:?} to a transaction"),
        };
        self.end_transaction(now_us, fate, wishes);
    }

    pub fn end_transaction(&mut self, now_us: u64, fate: Fate, wishes: &mut Vec<Wish>) {
        (self.stage, self.operation) = (Stage::Idle, None);
        let Transaction { seen, .. } = mem::take(&mut self.transaction).expect("there is one");
        wishes.push(Wish::Transacted(Observed { ended: now_us, fate, ..seen }));
    }
}
