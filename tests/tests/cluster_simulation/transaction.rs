//! Transactions of a client of the simulated cluster: each reads some lists with one request, of those that one server has, and
//! commits that its number is appended to some of them.

use std::iter::once;
use std::mem;

use tests::history::{Action, Operation, Outcome};
use tests::serializability::{Fate, Number, Observed};
use wire::reply::Objects;
use wire::{
    Changes, CommitRead, CommitWrite, CompletionError, Keys, Request, Requester, Status, SubmitError,
};

use super::{Caller, Stage, Wish};

/// Most lists of a transaction.
pub const LISTS_MAX: usize = 3;

/// Numbers that a list has at most: three such lists fit one frame.
pub const LIST_LENGTH_MAX: usize = 80;

/// A transaction that has not ended.
pub struct Transaction {
    seen: Observed,
    /// The versions of what it has read, in the order of its lists.
    versions: Vec<u64>,
    is_committing: bool,
    /// On purpose: it commits whatever has become of what it read.
    is_careless: bool,
}

impl Transaction {
    fn submit(
        &self,
        requester: &mut Requester,
        (now_us, tag): (u64, u64),
        (table, lists): Lists<'_>,
    ) -> bool {
        let keys: Vec<&[u8]> = lists.iter().map(|(_, key)| *key).collect();
        if !self.is_committing {
            let keys = Keys::from_slices(&keys);
            return has_room(requester.submit(now_us, tag, &Request::MultiGet { table, keys }));
        }
        let checked = keys.iter().zip(&self.versions);
        let checked = checked.map(|(key, version)| CommitRead { table, key, version: *version });
        let is_checked = self.seen.appends.is_empty() || !self.is_careless;
        let reads: Vec<_> = checked.filter(|_| is_checked).collect();
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
        has_room(requester.submit(now_us, tag, &Request::Commit { changes }))
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

/// The table of lists, and these with their keys.
type Lists<'k> = (u32, &'k [(Number, &'k [u8])]);

/// Whether the session had room for a request.
///
/// # Panics
/// If it can have none for this one.
fn has_room(submitted: Result<u64, SubmitError>) -> bool {
    match submitted {
        Ok(_) => true,
        Err(SubmitError::Full) => false,
        Err(error) => panic!("a request of a transaction: {error}"),
    }
}

impl Caller {
    /// Begins a transaction on lists, given with their keys. Of what it is to append to, it appends to what it has read.
    #[allow(dead_code, reason = "what real servers do with transactions is recorded elsewhere")]
    pub fn begin_transaction(
        &mut self,
        seen: Observed,
        mut lists: Vec<(Number, Vec<u8>)>,
        is_careless: bool,
    ) {
        assert!(lists.len() <= LISTS_MAX, "they fit one frame");
        let (list, key) = lists.remove(0);
        // It is routed as a read of its first list.
        let (action, outcome) = (Action::Get, Outcome::Unknown);
        self.begin(Operation { client: 0, key: list, call: seen.begun, end: None, action, outcome }, key);
        self.beside = lists;
        let (versions, is_committing) = (Vec::new(), false);
        self.transaction = Some(Transaction { seen, versions, is_committing, is_careless });
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
        let lists: Vec<(Number, &[u8])> = once((operation.key, &key[..])).chain(beside).collect();
        let link = self.links.get_mut(&server).expect("it is there");
        Some(transaction.submit(&mut link.requester, (now_us, self.attempt), (self.table, &lists)))
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
        let lists: Vec<Number> = once(operation.key).chain(self.beside.iter().map(|it| it.0)).collect();
        let transaction = self.transaction.as_mut().expect("there is one");
        let fate = match (transaction.is_committing, status) {
            (false, Ok(Status::Ok)) => {
                transaction.take_reads(&lists, body);
                self.stage = Stage::Lost;
                return;
            }
            (false, Ok(Status::BadToken) | Err(_)) | (true, Err(CompletionError::NotSent)) => Fate::Aborted,
            (true, Ok(Status::Ok)) => Fate::Committed,
            (true, Ok(Status::Conflict | Status::NotLocal)) => Fate::Aborted,
            (true, Ok(Status::BadToken) | Err(_)) => Fate::Unknown,
            (_, Ok(status)) => panic!("{status:?} to a transaction"),
        };
        self.end_transaction(now_us, fate, wishes);
    }

    pub fn end_transaction(&mut self, now_us: u64, fate: Fate, wishes: &mut Vec<Wish>) {
        (self.stage, self.operation) = (Stage::Idle, None);
        let Transaction { seen, .. } = mem::take(&mut self.transaction).expect("there is one");
        wishes.push(Wish::Transacted(Observed { ended: now_us, fate, ..seen }));
    }
}
