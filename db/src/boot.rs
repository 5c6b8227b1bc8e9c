//! Starts a server part by part in a fixed order, and stops it.
//!
//! ```text
//!   data directory -> metadata -> listeners, at which streams wait -> identity, administrator's secret -> store
//!                  -> log -> workers -> registry of extensions -> control
//!                  -> tables and extensions of the metadata -> streams are served -> membership of the cluster
//! ```
//! A failure at the start is a [`BootError`] and leaves no thread behind. At the stop, streams and migrations end
//! first, then workers, which answer their pending requests, and last the registration, so that the server stays
//! registered while it serves. Each wait is bounded ([`Joining`]).

pub mod administrator;
mod devices;
mod entrance;
mod identity;
pub mod log;
mod memory;
mod workers;

pub use devices::Devices;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cluster::metadata::ServerRun;
use cluster::secret::SecretHash;
use guest::watchdog::Watchdog;
use net::{Listener, Port, SharedPort, ShmListener, Waker};
use store::Store;

use self::entrance::Entrance;
use self::identity::Identity;
use self::log::RestOfLog;
use self::memory::{Damage, populate};
use crate::administration;
use crate::administration::{copying, membership, shares};
use crate::backups::{self, LogBackups};
use crate::clock::Clock;
use crate::config::Config;
use crate::control_plane::Control;
use crate::control_plane::acts::Acts;
use crate::control_plane::archives::Archives;
use crate::control_plane::home_balancer::HomeBalancer;
use crate::control_plane::lease_cache::LeaseCache;
use crate::control_plane::migrations::Migrations;
use crate::control_plane::ownership_guard::OwnershipGuard;
use crate::control_plane::promises;
use crate::control_plane::recovered_replies::RecoveredReplies;
use crate::control_plane::streams::Streams;
use crate::durability::log_thread::LogThread;
use crate::durability::replicas::backup_thread::{BackupHost, BackupThread};
use crate::extension::registry::{Prepare, Registry};
use crate::front::shm_listener::{self, ShmEntrance};
use crate::limits::{
    ATTEMPTS_BURST, ATTEMPTS_PER_SECOND, BACKUPS_TIDY_MS, CONTROL_STOP_MS, HOUSEKEEPING_MS, VERSIONS_LOOK_MS,
    WORKERS_STOP_MS,
};
use crate::moving::coordination;
use crate::process::Joining;
use crate::remote::{self, Wants};
use crate::session::completions::Completions;
use crate::tenant::account::Accounts;
use crate::view::change::Change;
use crate::worker::ports::FramePorts;
use crate::worker::response_limiter::{ResponseLimiter, ResponseRate};
use crate::worker::siblings::SiblingWorkers;

/// Rate of wrong secrets and tokens that a source may send.
const ATTEMPTS: ResponseRate = ResponseRate { burst: ATTEMPTS_BURST, per_second: ATTEMPTS_PER_SECOND };

/// First view of a server outside a cluster: no session is older.
const VIEW: u64 = 1;
/// Bits of a view that count the changes since a start. The bits above count the starts of a server in a cluster, so
/// that its views only grow.
const VIEW_BITS: u32 = 32;

/// A running server, which ends with [`Server::stop`] or on drop.
pub struct Server {
    control: Arc<Control>,
    tcp: SocketAddr,
    entrance: Entrance,
    /// Wakes the thread of remote reads, which does not park.
    remote: Option<Waker>,
    control_threads: Vec<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
    /// Replays what is left of the log.
    replay: Option<JoinHandle<()>>,
    /// Ends after the workers.
    log: Option<LogThread>,
    /// Finds backups, until the log has ended.
    finding: Option<JoinHandle<()>>,
    /// Keeps replicas of others' logs, which may wait for it while they stop as well.
    backup: Option<BackupThread>,
    /// Set when nothing is served any more.
    ended: Arc<AtomicBool>,
    registration: Option<JoinHandle<()>>,
    /// Ends after the workers.
    _watchdog: Watchdog,
    /// The server's identity in a cluster.
    _identity: Option<Identity>,
}

impl Server {
    /// Starts a server over kernel UDP, with shared memory for clients of its own host, or over DPDK.
    ///
    /// # Errors
    /// Names the part that failed, and the reason.
    pub fn start(config: &Config) -> Result<Self, BootError> {
        config.check().map_err(|error| BootError::new("configuration", error))?;
        match &config.dpdk {
            Some(settings) => devices::start_over_dpdk(config, settings),
            None => Self::start_over(config, Devices::over_kernel(config)?),
        }
    }

    /// Starts a server over the given devices. The data directory exists.
    ///
    /// # Errors
    /// Names the part that failed, and the reason.
    pub fn start_over<P: SharedPort + 'static>(
        config: &Config,
        Devices { listener, ports, metadata, prepare, shm_entrance }: Devices<P>,
    ) -> Result<Self, BootError> {
        let (mut clock, streams) = (Clock::new(), Streams::new(devices::stream_limits(config)?));
        let (tcp, reached) = addresses(config, &listener)?;
        let entrance = Entrance::open(listener, config.metrics, &streams)?;
        let (identity, run) = Identity::begin_run(config, &metadata, reached)?.unzip();
        let (store, accounts, completions) = memory(config, run.is_some())?;
        let ((administrator, nobody), registry) = (secrets(config)?, open_registry(prepare, &accounts)?);
        let ((ids, mut made), wants) = (devices::reserve(&metadata)?, remote_wants(run.is_some())?);
        let (frame_ports, wakers) = (FramePorts::of(&ports), ports.iter().map(Port::waker));
        let siblings = Arc::new(SiblingWorkers::new(wakers));
        let parts = (&store, &accounts, &completions, &mut made);
        let opened = log::open(config, parts, (&metadata, run), (&mut clock, &siblings, &entrance.gate))?;
        let log::OpenedLog { thread: log_thread, handle: log, rest, backups, backup } = opened;
        // Of a log that is gone others may answer the clients.
        let is_gone = run.is_some() && log.as_ref().is_some_and(|log| log.is_new);
        let first_client = if is_gone { 0 } else { ids.start };
        let (watchdog, when) = (start_watchdog(&siblings, clock)?, (clock, first_view(run)));
        let started = workers::start(config, &store, ports, when, &siblings, (wants.as_ref(), log.as_ref()))?;
        let (shm_listener, status) = shm_entrance.map(ShmEntrance::part).unzip();
        let control = Arc::new(Control {
            clock,
            lease_cache: LeaseCache::of(run),
            migrations: devices::migrations(run, &metadata, &siblings, config.cores)?,
            resumption: devices::resumption(&metadata, run, first_client, clock)?,
            recovered_replies: RecoveredReplies::default(),
            metadata_copied: AtomicU64::new(0),
            limit_sharing: OnceLock::new(),
            metadata,
            registry,
            accounts,
            store,
            log,
            host: BackupHost { name: config.host(), backup: backup.as_ref().map(BackupThread::handle) },
            archives: Archives::default(),
            completions,
            parts_made: made,
            emptied: Mutex::default(),
            workers: started.senders,
            metrics: started.metrics,
            ports: frame_ports,
            views: started.views,
            acts: Acts::default(),
            fence: started.fence,
            ownership_guard: OwnershipGuard::new(backups.as_ref().is_some_and(|log| log.row.replicas > 0)),
            shm_listener: status,
            administrator,
            nobody,
            streams,
            attempts: Mutex::new(ResponseLimiter::new(ATTEMPTS)),
            sessions: Mutex::default(),
            ended: Mutex::default(),
            tables: Mutex::default(),
            grants: Mutex::default(),
            traced: Mutex::default(),
            client_ids: Mutex::new(ids),
            changing: Mutex::new(()),
            owning: Mutex::new(()),
        });
        let ends = (started.threads, log_thread, backup);
        let mut server = Self::of(control, (tcp, entrance), ends, (watchdog, identity), wants.as_ref());
        server.start_control(config.populate)?.replay(rest)?.let_in(shm_listener)?;
        server.join_cluster(reached, wants, backups)?.copy_metadata(config)
    }

    /// Returns the server of these threads, which wait for what is to be started.
    fn of(
        control: Arc<Control>,
        (tcp, entrance): (SocketAddr, Entrance),
        (workers, log, backup): (Vec<JoinHandle<()>>, Option<LogThread>, Option<BackupThread>),
        (watchdog, identity): (Watchdog, Option<Identity>),
        wants: Option<&Wants>,
    ) -> Self {
        Self {
            control,
            tcp,
            entrance,
            remote: wants.map(Wants::waker),
            control_threads: Vec::new(),
            workers,
            replay: None,
            log,
            finding: None,
            backup,
            ended: Arc::new(AtomicBool::new(false)),
            registration: None,
            _watchdog: watchdog,
            _identity: identity,
        }
    }

    fn populate(&mut self, is_wanted: bool) -> Result<(), BootError> {
        if !is_wanted {
            return Ok(());
        }
        let ends = (Arc::clone(&self.entrance.gate), Arc::clone(&self.entrance.stopping));
        let populating = populate(Arc::clone(&self.control.store), ends);
        self.control_threads.push(populating.map_err(no_thread)?);
        Ok(())
    }

    /// Registers the server in its cluster, if it has one.
    fn join_cluster(
        mut self,
        reached: SocketAddr,
        wants: Option<Wants>,
        log_backups: Option<LogBackups>,
    ) -> Result<Self, BootError> {
        if let Some(wants) = wants {
            let asking = remote::start(&self.control, &self.entrance.stopping, wants);
            self.control_threads.push(asking.map_err(no_thread)?);
        }
        if let Some(run) = self.control.lease_cache.run() {
            let registered = membership::register(&self.control, &self.ended, reached, run);
            self.registration = Some(registered.map_err(no_thread)?);
            if let Some(backups) = log_backups {
                let finding = backups::start(&self.control, &self.ended, backups);
                self.finding = Some(finding.map_err(no_thread)?);
            }
            let following = membership::follow(&self.control, &self.entrance.stopping);
            self.control_threads.push(following.map_err(no_thread)?);
            let coordinating = coordination::start(&self.control, &self.entrance.stopping, run);
            self.control_threads.push(coordinating.map_err(no_thread)?);
            let asking = promises::start(&self.control, &self.entrance.stopping, run);
            self.control_threads.push(asking.map_err(no_thread)?);
            let sharing = shares::share(&self.control, &self.entrance.stopping);
            let sharing = sharing.map_err(no_thread)?;
            self.control.limit_sharing.get_or_init(|| sharing.thread().clone());
            self.control_threads.push(sharing);
        }
        Ok(self)
    }

    /// Keeps a copy of the metadata in the data directory, if others share it.
    fn copy_metadata(mut self, config: &Config) -> Result<Self, BootError> {
        if self.control.metadata.records().is_shared() {
            let copying = copying::copy(&self.control, &config.data_directory, &self.entrance.stopping);
            self.control_threads.push(copying.map_err(no_thread)?);
        }
        Ok(self)
    }

    /// Restores tables and extensions from the metadata, and starts housekeeping.
    fn start_control(&mut self, populates: bool) -> Result<&mut Self, BootError> {
        administration::restore(&self.control)
            .map_err(|refusal| BootError::new("cannot restore the server's state", refusal.text))?;
        self.populate(populates)?;
        let (control, stopping) = (Arc::clone(&self.control), Arc::clone(&self.entrance.stopping));
        let sweeping = thread::Builder::new().name("housekeeping".to_owned()).spawn(move || {
            let (mut home_balancer, mut damage) = (HomeBalancer::default(), Damage::default());
            let mut looks = (0..VERSIONS_LOOK_MS / HOUSEKEEPING_MS).cycle();
            let mut tidies = (0..BACKUPS_TIDY_MS / HOUSEKEEPING_MS).cycle();
            while !stopping.load(Ordering::Relaxed) {
                thread::park_timeout(Duration::from_millis(HOUSEKEEPING_MS));
                control.balance(&mut home_balancer);
                control.tidy();
                control.archives.end_idle();
                administration::watch_canaries(&control);
                damage.look(&control.store);
                if looks.next() == Some(0) {
                    control.keep_versions();
                }
                if tidies.next() == Some(0) {
                    backups::tidy(&control);
                }
            }
            control.acts.catch_up(&control.metadata);
        });
        self.control_threads.push(sweeping.map_err(no_thread)?);
        Ok(self)
    }

    /// Replays what is left of the log while the server serves. No tablet moves before the end.
    fn replay(&mut self, rest: Option<RestOfLog>) -> Result<&mut Self, BootError> {
        if let Some(rest) = rest {
            let [replaying, pulling] =
                rest.start(&self.control, (&self.entrance.gate, &self.entrance.stopping))?;
            self.replay = Some(replaying);
            self.control_threads.push(pulling);
        } else {
            self.control.migrations.iter().for_each(Migrations::admit);
        }
        Ok(self)
    }

    /// Starts the listener of local clients, and lets in the streams that wait.
    fn let_in(&mut self, shm_listener: Option<ShmListener>) -> Result<(), BootError> {
        if let Some(shm_listener) = shm_listener {
            let (stop, thread) = shm_listener::start(&self.control, shm_listener).map_err(no_thread)?;
            self.entrance.add(stop, thread);
        }
        self.entrance.gate.open(&self.control);
        Ok(())
    }

    /// Returns the address of the listener.
    #[must_use]
    pub fn tcp(&self) -> SocketAddr {
        self.tcp
    }

    /// Returns the address of the metrics port, if there is one.
    #[must_use]
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.entrance.metrics
    }

    /// Returns the control plane.
    #[must_use]
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Returns the UDP port of each core.
    #[must_use]
    pub fn frame_ports(&self) -> &[u16] {
        &self.control.ports.numbers
    }

    /// Returns whether all of the log is replayed: then tables have all their objects.
    #[must_use]
    pub fn has_replayed(&self) -> bool {
        self.entrance.gate.has_replayed()
    }

    /// Returns what makes the server useless, if anything: a worker has ended because its port broke, the log was not
    /// replayed to its end, others have taken over, or are to do so since the disk has failed, or nobody knows what the metadata says.
    #[must_use]
    pub fn failure(&self) -> Option<&'static str> {
        if self.control.ownership_guard.is_replaced.load(Ordering::Relaxed) {
            return Some("other servers take this one for ended, and recover what it owns: start it again");
        }
        if self.control.has_lost_metadata() {
            return Some("the disk of the metadata failed: nobody knows what it has until it is read again");
        }
        if self.control.is_left_to_others() {
            return Some("the disk of durable tables failed: other servers recover what this one owns");
        }
        if self.workers.iter().any(JoinHandle::is_finished) {
            return Some("a worker ended while the server was running");
        }
        let has_ended = self.replay.as_ref().is_some_and(JoinHandle::is_finished);
        (has_ended && !self.has_replayed()).then_some("the log was not replayed to its end")
    }

    /// Ends streams, then workers, and waits for all of them.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let is_replaced = self.control.ownership_guard.is_replaced.load(Ordering::Relaxed);
        if let Some(log) = self.control.log.as_ref().filter(|log| is_replaced && log.figures.replicas() > 0) {
            // No backup takes any more of its log: its last writes would wait in vain.
            log.waker.fail(&self.control.store);
        }
        self.control_threads.extend(self.entrance.end());
        self.control_threads.extend(self.replay.take());
        // Stream threads wait for migrations.
        if let Some(migrations) = &self.control.migrations {
            migrations.stop();
        }
        let joining = Joining::within(Duration::from_millis(CONTROL_STOP_MS));
        self.control_threads.iter().for_each(|thread| thread.thread().unpark());
        self.remote.iter().for_each(Waker::wake);
        for thread in self.control_threads.drain(..) {
            joining.join(thread);
        }
        if let Some(migrations) = &self.control.migrations {
            migrations.join(joining);
        }
        for worker in &self.control.workers {
            worker.send(Change::Stop);
        }
        let joining = Joining::within(Duration::from_millis(WORKERS_STOP_MS));
        for worker in self.workers.drain(..) {
            joining.join(worker);
        }
        if let Some(log) = self.log.take() {
            Joining::within(Duration::from_millis(WORKERS_STOP_MS)).join(log.stop());
        }
        self.ended.store(true, Ordering::Relaxed);
        let joining = Joining::within(Duration::from_millis(WORKERS_STOP_MS));
        for thread in self.finding.take().into_iter().chain(self.backup.take().map(BackupThread::stop)) {
            joining.join(thread);
        }
        if let Some(registration) = self.registration.take() {
            registration.thread().unpark();
            Joining::within(Duration::from_millis(WORKERS_STOP_MS)).join(registration);
        }
        self.control.acts.give_up();
    }
}

/// Returns the address of the listener, and the one at which others reach it.
fn addresses(config: &Config, listener: &Listener) -> Result<(SocketAddr, SocketAddr), BootError> {
    let tcp = listener.local().map_err(|error| BootError::new("listener", error))?;
    Ok((tcp, identity::reached_at(config.advertise, tcp)))
}

/// Returns the first view of a server.
fn first_view(run: Option<ServerRun>) -> u64 {
    run.map_or(VIEW, |run| u64::from(run.start) << VIEW_BITS)
}

fn no_thread(error: io::Error) -> BootError {
    BootError::new("cannot start a thread", error)
}

/// Makes the queue of invocations' remote reads, if the server is in a cluster.
fn remote_wants(is_wanted: bool) -> Result<Option<Wants>, BootError> {
    let wants = is_wanted.then(Wants::new).transpose();
    wants.map_err(|error| BootError::new("cannot create the queue of remote reads", error))
}

/// Returns the hash of the administrator's secret, and of one that nobody has.
fn secrets(config: &Config) -> Result<(SecretHash, SecretHash), BootError> {
    let administrator = administrator::open(&config.data_directory)
        .map_err(|error| BootError::new("cannot open the administrator's secret", error))?;
    let nobody = SecretHash::dummy().map_err(|error| BootError::new("cannot create a secret", error))?;
    Ok((administrator, nobody))
}

fn start_watchdog(siblings: &Arc<SiblingWorkers>, clock: Clock) -> Result<Watchdog, BootError> {
    let siblings = Arc::clone(siblings);
    Watchdog::start(move || siblings.help_the_absent(clock.now_us()))
        .map_err(|error| BootError::new("cannot start the watchdog", error))
}

fn open_registry(prepare: Prepare, accounts: &Accounts) -> Result<Registry, BootError> {
    Registry::open_with(prepare, accounts.clone())
        .map_err(|error| BootError::new("cannot open the extension registry", error))
}

/// Creates what workers, control plane and log share: the empty store, the tenants' accounts, what is known of clients.
fn memory(config: &Config, in_cluster: bool) -> Result<(Arc<Store>, Accounts, Arc<Completions>), BootError> {
    let store = Store::new(config.store(in_cluster));
    let store = store.map_err(|error| BootError::new("cannot create the store", error))?;
    Ok((store, Accounts::over(config.cores), Arc::default()))
}

/// An error that prevented a server's start: the part that failed, and advice for the operator.
#[derive(Debug)]
pub struct BootError(String);

impl BootError {
    fn new(what: &str, error: impl fmt::Display) -> Self {
        Self(format!("{what}: {error}"))
    }

    fn listening(place: &str, error: &io::Error) -> Self {
        let next = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "; another server may run there: choose a port with --listen, 0 for a free one"
            }
            _ => "",
        };
        Self(format!("cannot listen on {place}: {error}{next}"))
    }
}

impl fmt::Display for BootError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for BootError {}
