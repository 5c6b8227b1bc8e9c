//! A server of the simulated cluster: the real store, sessions with their rings, catalogs, views and dispatcher, without
//! threads. Who drives it says which worker does what at which moment.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use db::extension::invocation::Invocations;
use db::limits::{REFUSALS_BURST, REFUSALS_PER_SECOND};
use db::metrics::WorkerMetrics;
use db::ops::WorkerEnvironment;
use db::session::{Origin, Session};
use db::tablet::{Moving, Parts, PartsChange, TableEntry};
use db::tenant::account::Account;
use db::view::catalog::WorkerCatalog;
use db::view::change::{Change, Wake};
use db::view::{Cut, RoundView, Views};
use db::worker::batch_admission::BatchAdmission;
use db::worker::dispatch::Dispatch;
use db::worker::outgoing::Outgoing;
use db::worker::pending_requests::{PendingRequests, Resume};
use db::worker::ports::Exits;
use db::worker::response_limiter::{ResponseLimiter, ResponseRate};
use net::{Batch, Outbox};
use store::{Config, Core, HashRange, Quota, Store, Table, TableOptions};
use wire::limits::FRAME_BYTES_MAX;
use wire::{TabletMap, TenantId};

use crate::pieces::{Piece, joined, without};

pub const TENANT: TenantId = TenantId(1);
/// Of the one table, in the cluster.
pub const TABLE: u32 = 77;

/// A change of what is owned, which goes through all workers before the next one begins.
#[derive(Debug, Default)]
pub struct Owning {
    /// Owned from then on, in these parts.
    pub add: Vec<Piece>,
    /// Not owned from then on.
    pub remove: Option<HashRange>,
    /// On the move from then on for reads of both sides.
    pub moving: Option<Arc<Moving>>,
    /// Who is told when all workers have passed.
    pub then: Option<u32>,
}

struct Worker {
    core: Core,
    catalog: WorkerCatalog,
    metrics: WorkerMetrics,
    outgoing: Outgoing,
    refusals: ResponseLimiter,
    admission: BatchAdmission,
    invocations: Invocations<Origin>,
    pending: PendingRequests,
    passes: bool,
}

/// See the file's head.
pub struct Node {
    pub store: Arc<Store>,
    /// Of the thread that moves.
    pub mover: Core,
    /// What is owned once all changes have gone through, and in which parts.
    pub owned: Vec<Piece>,
    /// What reads may ask both sides for.
    moving: Vec<Arc<Moving>>,
    workers: Vec<Worker>,
    views: Arc<Views>,
    account: Arc<Account>,
    quota: Arc<Quota>,
    map: TabletMap,
    next_part: u32,
    queue: VecDeque<Owning>,
    /// The change that workers pass.
    cut: Option<(Arc<Cut>, Owning)>,
}

/// Takes the frames that leave.
#[derive(Default)]
struct Exit(Vec<(Vec<u8>, SocketAddr)>);

impl Exits for Exit {
    fn send(&mut self, _port: u16, out: &mut Outbox) -> io::Result<usize> {
        let frames = out.len();
        let frame = |index| {
            let (bytes, peer) = out.frame(index);
            (bytes.to_vec(), peer)
        };
        self.0.extend((0..frames).map(frame));
        out.clear();
        Ok(frames)
    }
}

impl Node {
    /// A server that was started just now, under this view, and owns nothing yet.
    pub fn new(view: u64, workers: usize, map: TabletMap) -> Node {
        let config = Config {
            memory_bytes: 8 << 20,
            segment_bytes: 64 << 10,
            cores: workers + 1,
            huge_pages: false,
            durable: false,
            recovery_cores: 0,
        };
        let store = Store::new(config).expect("a store");
        let account = Arc::new(Account::new(TENANT));
        let views = Arc::new(Views::new(view));
        let rate = ResponseRate { burst: REFUSALS_BURST, per_second: REFUSALS_PER_SECOND };
        let entry = Arc::new(TableEntry {
            id: TABLE,
            tenant: TENANT,
            name: "t".into(),
            writable: true,
            durability: control::Durability::Memory,
            owner: Arc::clone(&account),
            parts: Parts::new(TableOptions::default(), Vec::new(), &[]).expect("nothing"),
            map: Some(wire::Body::encode(&map).into()),
        });
        let worker = |index| {
            let mut catalog = WorkerCatalog::under(view);
            catalog.apply(Change::TableCreated(Arc::clone(&entry)));
            Worker {
                core: store.core(index),
                catalog,
                metrics: WorkerMetrics::new(),
                outgoing: Outgoing::new(FRAME_BYTES_MAX, view),
                refusals: ResponseLimiter::new(rate),
                admission: BatchAdmission::new(index),
                invocations: Invocations::without_isolation().expect("invocations"),
                pending: PendingRequests::default(),
                passes: false,
            }
        };
        Node {
            mover: store.core(workers),
            owned: Vec::new(),
            moving: Vec::new(),
            workers: (0..workers).map(worker).collect(),
            views,
            account,
            quota: Arc::new(Quota::new(workers + 1, u64::MAX)),
            map,
            next_part: 1,
            queue: VecDeque::new(),
            cut: None,
            store,
        }
    }

    /// An empty part, which nobody uses yet.
    pub fn make_part(&mut self, hashes: HashRange) -> Arc<Table> {
        self.next_part += 1;
        let options = TableOptions { hashes, ..TableOptions::default() };
        self.store.table_with(self.next_part, options, &self.quota)
    }

    /// Opens a session, which every worker knows then: the view that it begins under.
    pub fn open(&mut self, token: u64, now_us: u64) -> u64 {
        let session = Arc::new(Session::new(token, token, Arc::clone(&self.account), now_us));
        for worker in &mut self.workers {
            worker.catalog.apply(Change::SessionOpened(Arc::clone(&session)));
        }
        self.views.settled()
    }

    /// The view that all workers have passed.
    pub fn view(&self) -> u64 {
        self.views.settled()
    }

    /// What clients are told from the next change on.
    pub fn set_map(&mut self, map: TabletMap) {
        self.map = map;
    }

    pub fn map(&self) -> &TabletMap {
        &self.map
    }

    /// A round of a worker, with a frame or none: the frames that leave.
    pub fn serve(
        &mut self,
        (now_us, worker): (u64, usize),
        frame: Option<(&[u8], SocketAddr)>,
        batch: &mut Batch,
    ) -> Vec<(Vec<u8>, SocketAddr)> {
        let worker = &mut self.workers[worker];
        let view = RoundView { own: worker.catalog.view(), settled: self.views.settled() };
        worker.outgoing.set_view(view.settled);
        self.store.advance_clock(now_us / 1000);
        batch.clear();
        if let Some((frame, peer)) = frame {
            batch.push(frame, peer);
        }
        let mut exit = Exit::default();
        {
            let pin = worker.core.pin();
            let environment = WorkerEnvironment {
                core: &worker.core,
                pin: &pin,
                tables: &worker.catalog.tables,
                metrics: &worker.metrics,
                remote: None,
                now_us,
                wall_ms: now_us / 1000,
            };
            let (catalog, port) = (&worker.catalog, &mut exit);
            let (outgoing, pending) = (&mut worker.outgoing, &mut worker.pending);
            Resume { environment, catalog, view, port, outgoing, pending }.run();
            let mut dispatch = Dispatch {
                environment,
                catalog: &worker.catalog,
                port: &mut exit,
                arrived_at: 0,
                outgoing: &mut worker.outgoing,
                refusals: &mut worker.refusals,
                admission: &mut worker.admission,
                invocations: &mut worker.invocations,
                pending: &mut worker.pending,
                view,
                run_at: usize::MAX,
            };
            dispatch.batch(batch);
        }
        worker.outgoing.send(&mut exit, &worker.metrics).expect("it leaves");
        worker.core.step();
        exit.0
    }

    /// Queues a change of what is owned. Whether it begins now: then each worker is to pass at some moment.
    pub fn own(&mut self, owning: Owning) -> bool {
        self.queue.push_back(owning);
        self.begin()
    }

    /// Whether something waits at a worker.
    pub fn is_due(&self, worker: usize, now_us: u64) -> bool {
        self.workers[worker].pending.is_due(now_us)
    }

    /// Whether changes are on their way.
    pub fn is_changing(&self) -> bool {
        self.cut.is_some()
    }

    fn begin(&mut self) -> bool {
        if self.cut.is_some() {
            return false;
        }
        let Some(owning) = self.queue.pop_front() else { return false };
        let bounds = |range: HashRange| (range.first(), range.last());
        for gone in owning.remove.map(bounds).into_iter().chain(owning.add.iter().map(|(range, _)| *range)) {
            self.owned = without(&self.owned, gone);
        }
        self.owned.extend(owning.add.iter().cloned());
        self.moving.retain(|moving| moving.is_open());
        self.moving.extend(owning.moving.clone());
        let parts = self.parts();
        let entry = self.workers[0].catalog.tables.get(TENANT, TABLE).expect("the table");
        let entry = Arc::new(entry.with_parts(parts, Some(&self.map)));
        let view = self.views.next();
        let cut = Cut::new(view, vec![entry], self.workers.len(), Arc::clone(&self.views));
        self.cut = Some((Arc::new(cut), owning));
        self.workers.iter_mut().for_each(|worker| worker.passes = true);
        true
    }

    /// What is owned as the server's tables have it: of parts that share hashes the newest one has them.
    fn parts(&self) -> Parts {
        let mut held: Vec<Arc<Table>> = Vec::new();
        for (_, part) in &self.owned {
            if !held.iter().any(|held| Arc::ptr_eq(held, part)) {
                held.push(Arc::clone(part));
            }
        }
        let range = |&(first, last): &(u64, u64)| HashRange::new(first, last).expect("tablets are wide");
        let owned: Vec<HashRange> = joined(&self.owned).iter().map(range).collect();
        let parts = Parts::new(TableOptions::default(), held, &owned).expect("parts of what is owned");
        let is_as_it_was =
            |((first, _), part): &Piece| parts.find(b"", *first).is_some_and(|found| found.id() == part.id());
        assert!(self.owned.iter().all(is_as_it_was), "each range is in the part in which it has come");
        let change = PartsChange { moving: self.moving.clone(), ..PartsChange::default() };
        parts.altered(&change).expect("parts as before")
    }

    /// Lets what waits for these hashes of a part go on.
    pub fn wake(&mut self, part: &Table, hashes: Option<&[u64]>) {
        let wake = Wake { part: part.id(), hashes: hashes.map(Into::into) };
        self.workers.iter_mut().for_each(|worker| worker.pending.wake(&wake));
    }

    /// A worker passes. When it was the last one: whoever waited for that, and whether another change begins.
    pub fn pass(&mut self, worker: usize) -> Option<(Option<u32>, bool)> {
        let worker = &mut self.workers[worker];
        if !std::mem::take(&mut worker.passes) {
            return None;
        }
        let (cut, _) = self.cut.as_ref().expect("there is something to pass");
        worker.catalog.apply(Change::Cut(Arc::clone(cut)));
        worker.pending.wake_where(|_| true);
        if self.workers.iter().any(|worker| worker.passes) {
            return None;
        }
        let (_, owning) = self.cut.take().expect("it was there");
        Some((owning.then, self.begin()))
    }
}
