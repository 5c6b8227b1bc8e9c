//! Workers over a loopback network, with a part whose objects are in another store, and a core of theirs for who pulls.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use db::clock::Clock;
use db::metrics::{Counter, WorkerMetrics, total};
use db::session::{Session, StreamAnswer};
use db::sync::oneshot::{Receiver, oneshot};
use db::tablet::{Parts, TableEntry};
use db::tenant::account::{Account, Accounts};
use db::view::change::{Change, ChangeSender, StreamRequest, Wake, broadcast, change_queue};
use db::view::{Cut, Views};
use db::worker::ports::Ports;
use db::worker::siblings::SiblingWorkers;
use db::worker::{Worker, WorkerParts};
use net::{Faults, IdleStrategy, LoopbackClock, LoopbackNetwork, LoopbackPort, Port};
use store::{Config, HashRange, Store, Table, TableOptions};
use wire::{Request, TenantId};

pub const TENANT: TenantId = TenantId(1);
pub const TABLE: u32 = 70;
/// The part's number, which is not the table's.
pub const PART: u32 = 3;
pub const WORKERS: usize = 2;
pub const PARTITIONS: usize = 8;
/// The view under which all is owned.
pub const VIEW: u64 = 1;

/// What has the objects, and serves nobody any more.
pub struct Source {
    pub store: Arc<Store>,
    pub table: Arc<Table>,
}

impl Source {
    /// Objects of these keys and values, a few of them written more than once or removed again.
    pub fn with(objects: impl Iterator<Item = (Vec<u8>, Option<i64>)>) -> Self {
        let config = Config {
            memory_bytes: 64 << 20,
            segment_bytes: 1 << 20,
            cores: 1,
            huge_pages: false,
            durable: false,
            recovery_cores: 0,
        };
        let store = Store::new(config).expect("a store");
        let (core, table) = (store.core(0), store.table(1));
        for (key, value) in objects {
            let (pin, hash) = (core.pin(), store::hash(&key));
            let put = |value: i64| {
                let bytes = value.to_le_bytes();
                pin.put(&table, hash, &key, &bytes, store::Condition::Always).expect("there is room")
            };
            put(-1);
            match value {
                Some(value) => drop(put(value)),
                None => drop(pin.delete(&table, hash, &key, store::Condition::Always).expect("it was there")),
            }
        }
        drop(core);
        Self { store, table }
    }
}

/// See the file's head.
pub struct Site {
    pub network: LoopbackNetwork,
    pub cores: Vec<SocketAddr>,
    pub senders: Vec<ChangeSender>,
    pub metrics: Vec<Arc<WorkerMetrics>>,
    pub views: Arc<Views>,
    pub store: Arc<Store>,
    pub part: Arc<Table>,
    pub entry: Arc<TableEntry>,
    threads: Vec<JoinHandle<()>>,
    account: Arc<Account>,
}

impl Site {
    /// A server that owns all of a table, of which nothing has arrived.
    pub fn expecting(source: &Source, options: TableOptions, seed: u64) -> Self {
        let config = Config {
            memory_bytes: 64 << 20,
            segment_bytes: 1 << 20,
            cores: WORKERS + 1,
            huge_pages: false,
            durable: false,
            recovery_cores: 0,
        };
        let store = Store::new(config).expect("a store");
        let account = Accounts::over(WORKERS + 1).of(TENANT);
        let part = store.table_with(PART, options, account.quota(WORKERS + 1));
        part.expect_arrivals(PARTITIONS, source.table.version_ceiling());
        let network = LoopbackNetwork::new(seed, Faults::default(), LoopbackClock::Real);
        let ports: Vec<LoopbackPort> = (0..WORKERS).map(|_| network.port().expect("a port")).collect();
        let handles: Arc<[_]> = ports.iter().map(net::SharedPort::handle).collect();
        let siblings = Arc::new(SiblingWorkers::new(ports.iter().map(Port::waker)));
        let views = Arc::new(Views::new(VIEW));
        let cores = ports.iter().map(LoopbackPort::local).collect();
        let (mut senders, mut metrics, mut threads) = (Vec::new(), Vec::new(), Vec::new());
        for (index, port) in ports.into_iter().enumerate() {
            let (sender, changes) = change_queue(port.waker());
            let own = Arc::new(WorkerMetrics::new());
            let parts = WorkerParts {
                core: store.core(index),
                ports: Ports::new(port, index, Arc::clone(&handles)),
                siblings: Arc::clone(&siblings),
                changes,
                metrics: Arc::clone(&own),
                clock: Clock::new(),
                idle: IdleStrategy { spin_us: 5, yield_until_us: 50 },
                views: Arc::clone(&views),
                fence: Arc::default(),
                log: None,
                remote: None,
                isolation: true,
                push_back_after: None,
            };
            threads.push(thread::spawn(move || {
                Worker::new(parts).expect("stacks").run().expect("a port that works");
            }));
            senders.push(sender);
            metrics.push(own);
        }
        let parts = Parts::whole(Arc::clone(&part));
        let entry = TableEntry {
            id: TABLE,
            tenant: TENANT,
            name: "t".into(),
            writable: true,
            durability: control::Durability::Memory,
            owner: Arc::clone(&account),
            parts,
            map: None,
        };
        let entry = Arc::new(entry);
        broadcast(&senders, &Change::TableCreated(Arc::clone(&entry))).expect("workers that run");
        Self { network, cores, senders, metrics, views, store, part, entry, threads, account }
    }

    /// Opens a session.
    pub fn session(&self, token: u64) -> Arc<Session> {
        let session = Arc::new(Session::new(token, token, Arc::clone(&self.account), 0));
        self.tell(&Change::SessionOpened(Arc::clone(&session)));
        session
    }

    pub fn tell(&self, change: &Change) {
        broadcast(&self.senders, change).expect("workers that run");
    }

    /// As [`db::control_plane::Control::wake`].
    pub fn wake(&self, hashes: Option<&[u64]>) {
        self.part.not_pulled(hashes.unwrap_or_default());
        let wake = Arc::new(Wake { part: PART, hashes: hashes.map(Into::into) });
        self.senders.iter().for_each(|worker| assert!(worker.send(Change::Wake(Arc::clone(&wake)))));
    }

    /// Owns these ranges from the next view on, which it gives.
    pub fn cut(&self, owned: &[HashRange]) -> u64 {
        let parts = Parts::new(TableOptions::default(), self.entry.parts.held().to_vec(), owned);
        let entry = Arc::new(self.entry.with_parts(parts.expect("of the part"), None));
        let view = self.views.next();
        let cut = Cut::new(view, vec![entry], WORKERS, Arc::clone(&self.views));
        self.tell(&Change::Cut(Arc::new(cut)));
        view
    }

    /// A request over a stream to a worker: where its answer comes.
    pub fn stream_request(
        &self,
        session: &Arc<Session>,
        (worker, view, sequence): (usize, u64, u64),
        request: &Request<'_>,
    ) -> Receiver<StreamAnswer> {
        let mut record = vec![0; request.body_bytes()];
        request.encode(&mut record);
        let (answer, answered) = oneshot();
        let request = StreamRequest {
            session: Arc::clone(session),
            sequence,
            first_unacknowledged: 1,
            view,
            opcode: request.opcode(),
            flags: 0,
            record,
            head_bytes: 0,
            answer,
        };
        assert!(self.senders[worker].send(Change::Request(Arc::new(request))));
        answered
    }

    /// Requests that wait, at all workers.
    pub fn waiting(&self) -> u64 {
        self.metrics.iter().map(|metrics| metrics.waits().waiting()).sum()
    }

    pub fn total(&self, counter: Counter) -> u64 {
        total(self.metrics.iter().map(|metrics| &**metrics), counter)
    }

    /// Waits until so many requests wait.
    pub fn until_waiting(&self, requests: u64) {
        while self.waiting() != requests {
            thread::yield_now();
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _told = self.senders.iter().filter(|sender| sender.send(Change::Stop)).count();
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "a worker has panicked");
        }
    }
}
