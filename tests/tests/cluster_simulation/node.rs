//! A server of the simulated cluster: the real store, sessions with their rings, catalogs, views and dispatcher, without
//! threads. Who drives it says which worker does what at which moment.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use cluster::metadata::{Metadata, ServerRun};
use control::Durability;
use db::extension::invocation::Invocations;
use db::limits::{REFUSALS_BURST, REFUSALS_PER_SECOND};
use db::metrics::WorkerMetrics;
use db::ops::WorkerEnvironment;
use db::session::{Origin, Session};
use db::tablet::{DurableParts, Parts, PartsChange, Range, TableEntry, unite};
use db::tenant::account::{Account, Accounts};
use db::view::catalog::WorkerCatalog;
use db::view::change::{Change, Wake};
use db::view::{Cut, Fence, RoundView, Views};
use db::worker::batch_admission::BatchAdmission;
use db::worker::dispatch::Dispatch;
use db::worker::outgoing::Outgoing;
use db::worker::pending_requests::{PendingRequests, Resume};
use db::worker::ports::Exits;
use db::worker::response_limiter::{ResponseLimiter, ResponseRate};
use net::{Batch, Outbox};
use store::{Config, Core, HashRange, Pinned, ReplayError, Store, Table, TableOptions};
use wire::limits::FRAME_BYTES_MAX;
use wire::{TabletMap, TenantId};

use super::world::LEASES_PACE;

pub const TENANT: TenantId = TenantId(1);
/// Of the one table, in the cluster.
pub const TABLE: u32 = 1;

/// Sizes of the store of a server with a log.
pub const DURABLE_SEGMENT_BYTES: usize = 16 << 10;
const DURABLE_MEMORY_BYTES: usize = 1 << 20;

/// A change of what is owned, which goes through all workers before the next one begins.
#[derive(Debug, Default)]
pub struct Owning {
    pub change: PartsChange,
    /// Who is told when all workers have passed.
    pub then: Option<u32>,
}

/// Records the parts that a log names.
pub struct LoggedParts {
    pub parts: DurableParts,
    pub metadata: Metadata,
    pub run: ServerRun,
    /// What parts begin above.
    pub versions: u64,
    /// Written or synced.
    pub durability: Durability,
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
    /// What is here and owned as of the last change that has begun.
    pub parts: Parts,
    workers: Vec<Worker>,
    views: Arc<Views>,
    pub fence: Arc<Fence>,
    /// On purpose: it serves without a lease.
    pub ignores_fence: bool,
    account: Arc<Account>,
    map: TabletMap,
    next_part: u32,
    /// Of a server with a log.
    pub logged: Option<LoggedParts>,
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

/// The store of a server; of one with a log it has heads for that, and so little memory that it is cleaned all the time.
pub fn new_store(workers: usize, durable: bool) -> Arc<Store> {
    let (memory_bytes, segment_bytes) =
        if durable { (DURABLE_MEMORY_BYTES, DURABLE_SEGMENT_BYTES) } else { (8 << 20, 64 << 10) };
    let cores = workers + 1;
    let config = Config { memory_bytes, segment_bytes, cores, huge_pages: false, durable, recovery_cores: 0 };
    Store::new(config).expect("a store")
}

impl Node {
    /// A server that was started just now, under this view, and owns nothing yet; with a log it has these parts.
    pub fn new(
        (store, accounts): (Arc<Store>, &Accounts),
        (view, workers): (u64, usize),
        map: TabletMap,
        logged: Option<LoggedParts>,
    ) -> Node {
        let account = accounts.of(TENANT);
        let views = Arc::new(Views::new(view));
        let rate = ResponseRate { burst: REFUSALS_BURST, per_second: REFUSALS_PER_SECOND };
        let durability = logged.as_ref().map_or(Durability::Memory, |logged| logged.durability);
        let come = logged.as_ref().map(|logged| logged.parts.take_recovered(TABLE)).unwrap_or_default();
        for part in &come {
            part.begin_above(logged.as_ref().map_or(0, |logged| logged.versions));
            part.set_synced(durability == Durability::Synced);
        }
        let nothing = Parts::none(TableOptions::default());
        let parts = nothing.altered(&PartsChange { come, ..PartsChange::default() }).expect("parts");
        let entry = Arc::new(TableEntry {
            id: TABLE,
            tenant: TENANT,
            name: "t".into(),
            writable: true,
            durability,
            owner: Arc::clone(&account),
            parts: parts.clone(),
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
            parts,
            workers: (0..workers).map(worker).collect(),
            views,
            fence: Arc::default(),
            ignores_fence: false,
            account,
            map,
            next_part: 1,
            logged,
            queue: VecDeque::new(),
            cut: None,
            store,
        }
    }

    /// An empty part, which nobody uses yet; `None` if it cannot be recorded.
    pub fn make_part(&mut self, hashes: HashRange) -> Option<Arc<Table>> {
        let bounds = (hashes.first(), hashes.last());
        let number = match &self.logged {
            Some(LoggedParts { parts, metadata, run, .. }) => {
                let number = parts.add((TENANT, TABLE), bounds).expect("the own file");
                let row = parts.row(number).expect("it was just recorded");
                metadata.log_part_add(run.server, &row).ok()?;
                number
            }
            None => {
                self.next_part += 1;
                self.next_part
            }
        };
        let options = TableOptions { hashes, durable: self.logged.is_some(), ..TableOptions::default() };
        let quota = self.account.quota(self.store.cores());
        let part = self.store.table_with(number, options, quota);
        if let Some(logged) = &self.logged {
            part.begin_above(logged.versions);
            part.set_synced(logged.durability == Durability::Synced);
        }
        Some(part)
    }

    /// Puts an object beside those of the clients, if it is owned here.
    pub fn fill(&self, number: u64, value: &[u8]) {
        let key = format!("fill {number}");
        let hash = store::hash(key.as_bytes());
        if let Some(part) = self.parts.find(key.as_bytes(), hash) {
            let always = store::Condition::Always;
            // There may be no room now.
            let _ = self.mover.pin().put(part, hash, key.as_bytes(), value, always);
            (0..4).for_each(|_| _ = self.mover.step());
        }
    }

    /// Stores objects, with steps of the store's background work between attempts without room.
    pub fn store_objects(&self, store: impl Fn(&Pinned<'_>) -> Result<(), ReplayError>) {
        let attempt = || {
            let stored = store(&self.mover.pin());
            stored.inspect_err(|_| (0..64).for_each(|_| _ = self.mover.step()))
        };
        let stored = (0..100).find_map(|_| attempt().ok());
        stored.expect("there is room");
    }

    /// First and last hashes of what is owned, whatever the parts.
    pub fn owned(&self) -> Vec<Range> {
        unite(&self.parts.owned(), &[])
    }

    /// What a part keeps, if that is not everything.
    pub fn kept(&self, part: &Table) -> Option<Vec<Range>> {
        self.logged.as_ref()?.parts.kept(part.id())
    }

    /// Takes parts out of service for good.
    pub fn retire(&self, parts: &[Arc<Table>]) {
        parts.iter().for_each(|part| part.retire());
        self.logged.iter().for_each(|logged| logged.parts.forget(parts));
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
        let mut view = RoundView { own: worker.catalog.view(), settled: self.views.settled() };
        worker.outgoing.set_view(view.settled);
        if self.fence.is_passed(now_us * LEASES_PACE) && !self.ignores_fence {
            view = view.fenced();
        }
        self.store.advance_clock(now_us / 1000);
        batch.clear();
        if let Some((frame, peer)) = frame {
            batch.push(frame, peer);
        }
        let mut exit = Exit::default();
        let reached = self.store.reached_cuts();
        if worker.outgoing.has_due(reached) {
            worker.outgoing.release_held(&mut exit, &worker.metrics, reached, false);
        }
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
        let worker = &self.workers[worker];
        worker.pending.is_due(now_us) || worker.outgoing.has_due(self.store.reached_cuts())
    }

    /// Whether answers wait for the disk.
    pub fn holds(&self) -> bool {
        self.workers.iter().any(|worker| !worker.outgoing.holds_nothing())
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
        self.parts = self.parts.altered(&owning.change).expect("parts of what is owned");
        let entry = self.workers[0].catalog.tables.get(TENANT, TABLE).expect("the table");
        let entry = Arc::new(entry.with_parts(self.parts.clone(), Some(&self.map)));
        let view = self.views.next();
        let cut = Cut::new(view, vec![entry], self.workers.len(), Arc::clone(&self.views));
        self.cut = Some((Arc::new(cut), owning));
        self.workers.iter_mut().for_each(|worker| worker.passes = true);
        true
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
        self.retire(&owning.change.go);
        Some((owning.then, self.begin()))
    }
}
