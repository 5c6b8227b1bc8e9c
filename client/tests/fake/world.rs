//! What a fake server holds: objects, tables, sessions with their exactly-once records.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use control::{
    AdminRequest, ExtensionResolved, FunctionEntry, FunctionMode, SessionEntry, Statistic, TableEntry,
    TableId, TableStatistics, TenantCreated, TenantEntry,
};
use wire::{
    Body, Changes, CommitItem, Condition, LoggedReply, Request, ServerPlace, ShmEndpoint, Status, TabletMap,
    function_hash, reply,
};
use xxhash_rust::xxh3::xxh3_64;

static NEXT_TOKEN: AtomicU64 = AtomicU64::new(1_001);

pub struct World {
    pub objects: BTreeMap<(u32, Vec<u8>), (u64, Vec<u8>)>,
    pub tables: BTreeMap<String, u32>,
    /// Requests that were executed, repeated answers not counted.
    pub executions: u64,
    /// The next so many requests are put off.
    pub retries: u32,
    /// Window that new sessions get.
    pub credits: u16,
    /// The core that sessions are told to send to.
    pub home: u16,
    /// Where clients of its host are let in, as new sessions are told.
    pub shm: Option<ShmEndpoint>,
    /// Frames that came to each core.
    pub frames: BTreeMap<u16, u64>,
    /// What its answers name, and requests have to be sent under.
    pub view: u64,
    /// Hashes of which it executes requests, first and last.
    pub owned: Vec<(u64, u64)>,
    /// What it answers to who asks for the tablets of a table.
    pub map: Vec<u8>,
    /// How often it was asked for those, repetitions of a request not counted.
    pub maps_asked: u64,
    /// What it answers to gets of keys that do not wait, without a look at who owns them; else `NotOwned`.
    pub now: HashMap<Vec<u8>, (Status, Vec<u8>)>,
    /// How often it was asked so, by key; repetitions of a request are not counted.
    pub asked_now: HashMap<Vec<u8>, u64>,
    /// Id of the extension; a test changes it as an installation would.
    pub extension: u32,
    /// How often names were resolved.
    pub resolutions: u64,
    /// How often a session was opened.
    pub sessions_opened: u64,
    /// Sessions have a proof, and their records outlive a restart, as do the objects.
    pub is_resumable: bool,
    /// How often a session was resumed.
    pub sessions_resumed: u64,
    /// It executes what comes in frames, and its answers get lost.
    pub is_mute: bool,
    /// Frames to it get lost.
    pub is_deaf: bool,
    sessions: HashMap<u64, Records>,
    /// The answers of a server that it has recovered, by client id.
    recovered: HashMap<u64, HashMap<u64, (Status, Vec<u8>)>>,
    /// The records of clients whose session a restart ended, by client id.
    gone: HashMap<u64, Records>,
    version: u64,
}

/// The exactly-once records of a session.
#[derive(Default)]
struct Records {
    client_id: u64,
    /// Everything below is acknowledged, and forgotten.
    floor: u64,
    answers: HashMap<u64, (Status, Vec<u8>)>,
    /// Sequences of what was answered without a record, so that repetitions are not counted.
    seen: HashSet<u64>,
}

impl World {
    pub fn new() -> World {
        World {
            objects: BTreeMap::new(),
            tables: BTreeMap::new(),
            executions: 0,
            retries: 0,
            credits: 64,
            home: 0,
            shm: None,
            frames: BTreeMap::new(),
            view: 1,
            owned: vec![(0, u64::MAX)],
            map: TabletMap::whole(0, ServerPlace { number: 0, address: String::new() }).encode(),
            maps_asked: 0,
            now: HashMap::new(),
            asked_now: HashMap::new(),
            extension: 1,
            resolutions: 0,
            sessions_opened: 0,
            is_resumable: false,
            sessions_resumed: 0,
            is_mute: false,
            is_deaf: false,
            sessions: HashMap::new(),
            recovered: HashMap::new(),
            gone: HashMap::new(),
            version: 0,
        }
    }

    pub fn open_session(&mut self) -> u64 {
        // No two servers give the same one.
        let token = NEXT_TOKEN.fetch_add(1, Ordering::Relaxed);
        self.sessions.insert(token, Records { client_id: token, ..Records::default() });
        self.sessions_opened += 1;
        token
    }

    /// Gives a client that comes back a session with its records, unless they are gone.
    pub fn resume_session(&mut self, client_id: u64, first_unacknowledged: u64) -> Option<u64> {
        let open = self.sessions.iter().find(|(_, records)| records.client_id == client_id);
        if let Some((&token, _)) = open {
            return Some(token);
        }
        let records = self.gone.remove(&client_id)?;
        let token = NEXT_TOKEN.fetch_add(1, Ordering::Relaxed);
        self.sessions.insert(token, records);
        self.acknowledge(token, first_unacknowledged);
        self.sessions_resumed += 1;
        Some(token)
    }

    /// Takes over what another server had, and the answers that it gave, as who recovers its log.
    #[allow(dead_code, reason = "where one server is all, nobody recovers it")]
    pub fn recover(&mut self, other: &mut World) {
        self.objects.append(&mut other.objects);
        self.owned.append(&mut other.owned);
        let records = other.sessions.drain().map(|(_, records)| (records.client_id, records.answers));
        self.recovered.extend(records);
    }

    /// The answers that a recovered server gave to a client; `None` if it is not known.
    pub fn replies_of(&self, client_id: u64, first_unacknowledged: u64) -> Option<Vec<LoggedReply>> {
        let answers = self.recovered.get(&client_id)?.iter();
        let wanted = answers.filter(|(sequence, _)| **sequence >= first_unacknowledged);
        let reply = |(&sequence, (status, body)): (&u64, &(Status, Vec<u8>))| LoggedReply {
            sequence,
            status: *status,
            body: body.as_slice().into(),
        };
        Some(wanted.map(reply).collect())
    }

    pub fn client_id(&self, token: u64) -> u64 {
        self.sessions[&token].client_id
    }

    pub fn knows(&self, token: u64) -> bool {
        self.sessions.contains_key(&token)
    }

    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    pub fn forget_sessions(&mut self) {
        let ended = self.sessions.drain().map(|(_, records)| (records.client_id, records));
        if self.is_resumable {
            self.gone.extend(ended);
        }
    }

    pub fn acknowledge(&mut self, token: u64, first_unacknowledged: u64) {
        if let Some(records) = self.sessions.get_mut(&token) {
            let floor = records.floor.max(first_unacknowledged);
            records.floor = floor;
            records.answers.retain(|&sequence, _| sequence >= floor);
        }
    }

    /// Executes a request, or repeats the answer that it got before.
    pub fn execute_once(
        &mut self,
        (token, sequence): (u64, u64),
        view: u64,
        code: u8,
        body: &[u8],
    ) -> (Status, Vec<u8>) {
        let Some(records) = self.sessions.get(&token) else { return (Status::BadToken, vec![]) };
        if let Some(answer) = records.answers.get(&sequence) {
            return answer.clone();
        }
        if sequence < records.floor {
            return (Status::Expired, vec![]);
        }
        if self.retries > 0 {
            self.retries -= 1;
            return (Status::Retry, reply::encode_retry(500).to_vec());
        }
        if view != self.view {
            return (Status::WrongView, vec![]);
        }
        let answer = match Request::decode(code, body) {
            Ok(Request::Tablets { .. }) => {
                self.maps_asked += u64::from(self.is_fresh(token, sequence));
                return (Status::Ok, self.map.clone());
            }
            Ok(Request::GetNow { key, .. }) => {
                let fresh = u64::from(self.is_fresh(token, sequence));
                *self.asked_now.entry(key.to_vec()).or_default() += fresh;
                return self.now.get(key).cloned().unwrap_or((Status::NotOwned, vec![]));
            }
            Ok(request) if !self.owns(&request) => return (Status::NotOwned, vec![]),
            Ok(request) => self.execute(&request),
            Err(status) => (status, vec![]),
        };
        self.executions += 1;
        if let Some(records) = self.sessions.get_mut(&token) {
            records.answers.insert(sequence, answer.clone());
        }
        answer
    }

    /// Whether a request that leaves no record comes for the first time.
    fn is_fresh(&mut self, token: u64, sequence: u64) -> bool {
        self.sessions.get_mut(&token).is_some_and(|records| records.seen.insert(sequence))
    }

    fn owns(&self, request: &Request<'_>) -> bool {
        let owns = |hash: u64| self.owned.iter().any(|&(first, last)| (first..=last).contains(&hash));
        match request {
            Request::MultiGet { keys, .. } => keys.clone().all(|key| owns(xxh3_64(key))),
            // A function without a key is for whoever is asked.
            Request::Invoke { key: [], .. } => true,
            request => request.position(xxh3_64).is_none_or(owns),
        }
    }

    fn execute(&mut self, request: &Request<'_>) -> (Status, Vec<u8>) {
        match *request {
            Request::Ping => (Status::Ok, vec![]),
            Request::Get { table, key } => match self.objects.get(&(table, key.to_vec())) {
                Some((version, value)) => {
                    let object = reply::Object { version: *version, ttl_ms: None, value };
                    let mut body = vec![0; object.body_bytes()];
                    object.encode(&mut body);
                    (Status::Ok, body)
                }
                None => (Status::NotFound, vec![]),
            },
            Request::Put { table, key, value, condition }
            | Request::PutFor { table, key, value, condition, .. } => {
                self.write(table, key, Some(value), condition)
            }
            Request::Delete { table, key, condition } => match self.version_of(table, key) {
                0 if condition == Condition::Always => (Status::NotFound, vec![]),
                _ => self.write(table, key, None, condition),
            },
            Request::Increment { table, key, delta } => {
                let old = self.objects.get(&(table, key.to_vec())).map_or(&[0; 8][..], |(_, value)| value);
                let Ok(old) = <[u8; 8]>::try_from(old) else { return (Status::NotANumber, vec![]) };
                let Some(value) = i64::from_le_bytes(old).checked_add(delta) else {
                    return (Status::Overflow, vec![]);
                };
                self.write(table, key, Some(&value.to_le_bytes()), Condition::Always);
                (Status::Ok, reply::Number { version: self.version, value }.encode().to_vec())
            }
            Request::Commit { changes } => self.commit(&changes),
            Request::IncrementFloat { .. }
            | Request::Enumerate { .. }
            | Request::Scan { .. }
            | Request::Verify { .. }
            | Request::Tablets { .. }
            | Request::GetNow { .. } => (Status::UnknownOpcode, vec![]),
            Request::MultiGet { table, keys } => {
                let mut body = (keys.len() as u16).to_le_bytes().to_vec();
                for key in keys {
                    let found = self.objects.get(&(table, key.to_vec()));
                    let (version, value) = found.map_or((0, &[][..]), |(version, value)| (*version, value));
                    let status = if found.is_some() { Status::Ok } else { Status::NotFound };
                    let entry = reply::Entry { status, version, value };
                    let at = body.len();
                    body.resize(at + reply::Objects::ENTRY_HEAD_BYTES + value.len(), 0);
                    reply::Objects::encode_entry(&mut body[at..], &entry).unwrap();
                }
                (Status::Ok, body)
            }
            Request::Invoke { extension, .. } if extension != self.extension => {
                (Status::UnknownExtension, vec![])
            }
            Request::Invoke { function, arguments, .. } if function == function_hash("echo") => {
                (Status::Ok, arguments.to_vec())
            }
            Request::Invoke { function, .. } if function == function_hash("fail") => {
                let failure = reply::ExtensionFailure { code: 42, message: b"as asked" };
                let mut body = vec![0; failure.body_bytes()];
                failure.encode(&mut body);
                (Status::ExtensionError, body)
            }
            Request::Invoke { .. } => (Status::UnknownFunction, vec![]),
        }
    }

    fn commit(&mut self, changes: &Changes<'_>) -> (Status, Vec<u8>) {
        for (at, item) in changes.items().enumerate() {
            if let CommitItem::Read(read) = item
                && self.version_of(read.table, read.key) != read.version
            {
                return (Status::Conflict, (at as u32).to_le_bytes().to_vec());
            }
        }
        for item in changes.items() {
            if let CommitItem::Write(write) = item {
                self.write(write.table, write.key, write.value, Condition::Always);
            }
        }
        (Status::Ok, reply::encode_version(self.version).to_vec())
    }

    fn version_of(&self, table: u32, key: &[u8]) -> u64 {
        self.objects.get(&(table, key.to_vec())).map_or(0, |(version, _)| *version)
    }

    fn write(
        &mut self,
        table: u32,
        key: &[u8],
        value: Option<&[u8]>,
        condition: Condition,
    ) -> (Status, Vec<u8>) {
        let current = self.version_of(table, key);
        let holds = match condition {
            Condition::Always => true,
            Condition::Absent => current == 0,
            Condition::Present => current != 0,
            Condition::Version(version) => current == version,
        };
        if !holds {
            return (Status::ConditionFailed, reply::encode_version(current).to_vec());
        }
        self.version += 1;
        match value {
            Some(value) => self.objects.insert((table, key.to_vec()), (self.version, value.to_vec())),
            None => self.objects.remove(&(table, key.to_vec())),
        };
        (Status::Ok, reply::encode_version(self.version).to_vec())
    }

    pub fn administer(&mut self, body: &[u8]) -> (Status, Vec<u8>) {
        match AdminRequest::decode(body) {
            Ok(request) => self.administer_request(&request),
            Err(status) => (status, vec![]),
        }
    }

    fn table_entries(&self) -> Vec<TableEntry> {
        let entry = |(name, &id): (&String, &u32)| {
            let (name, ordered, objects, bytes, index_bytes) = (name.clone(), false, 0, 0, 0);
            TableEntry {
                id,
                name,
                ordered,
                objects,
                bytes,
                index_bytes,
                cache_bytes: None,
                evicted: 0,
                emptied_ms: None,
                durability: None,
                rewritten_bytes: None,
                tagged: false,
            }
        };
        self.tables.iter().map(entry).collect()
    }

    fn administer_request(&mut self, request: &AdminRequest<'_>) -> (Status, Vec<u8>) {
        let ok = |body: Vec<u8>| (Status::Ok, body);
        match request {
            AdminRequest::TableCreate { name, .. } if self.tables.contains_key(*name) => {
                (Status::AlreadyExists, vec![])
            }
            AdminRequest::TableCreate { name, .. } => {
                let id = self.tables.len() as u32 + 1;
                self.tables.insert((*name).to_owned(), id);
                ok(control::encode(&TableId { id }))
            }
            AdminRequest::TableOpen { name } => match self.tables.get(*name) {
                Some(&id) => ok(control::encode(&TableId { id })),
                None => (Status::UnknownTable, (*name).as_bytes().to_vec()),
            },
            AdminRequest::TableList => ok(control::encode(&self.table_entries())),
            AdminRequest::TableStat { name } => match self.tables.get(*name) {
                Some(&id) => {
                    let objects = self.objects.keys().filter(|(table, _)| *table == id).count() as u64;
                    ok(control::encode(&TableStatistics {
                        id,
                        objects,
                        bytes: 0,
                        index_bytes: 0,
                        cache_bytes: None,
                        evicted: 0,
                        emptied_ms: None,
                        durability: None,
                        rewritten_bytes: None,
                    }))
                }
                None => (Status::UnknownTable, vec![]),
            },
            AdminRequest::TableDrop { name } => match self.tables.remove(*name) {
                Some(_) => ok(vec![]),
                None => (Status::UnknownTable, vec![]),
            },
            AdminRequest::ExtensionResolve { name: "demo" } => {
                self.resolutions += 1;
                let functions = vec![function("echo"), function("fail")];
                ok(control::encode(&ExtensionResolved { extension: self.extension, version: 1, functions }))
            }
            AdminRequest::ExtensionResolve { .. } => (Status::UnknownExtension, vec![]),
            AdminRequest::Statistics { .. } => ok(control::encode(&vec![Statistic {
                name: "executions".to_owned(),
                value: self.executions,
            }])),
            AdminRequest::SessionList => {
                let entry = |records: &Records| SessionEntry {
                    client_id: records.client_id,
                    tenant: "acme".to_owned(),
                    peer: String::new(),
                    opened_ms: 0,
                    home_core: 0,
                };
                ok(control::encode(&self.sessions.values().map(entry).collect::<Vec<_>>()))
            }
            AdminRequest::SessionRevoke { client_id } => {
                self.sessions.retain(|_, records| records.client_id != *client_id);
                ok(vec![])
            }
            AdminRequest::TenantCreate { .. } => {
                ok(control::encode(&TenantCreated { secret: "new".to_owned() }))
            }
            AdminRequest::TenantList => ok(control::encode(&Vec::<TenantEntry>::new())),
            _ => (Status::NotPermitted, vec![]),
        }
    }
}

/// A function that reads.
fn function(name: &str) -> FunctionEntry {
    FunctionEntry {
        name: name.to_owned(),
        hash: function_hash(name),
        mode: FunctionMode::Read,
        doc: String::new(),
    }
}
