//! Servers of a cluster over a real etcd, and what is done to them while clients record.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use client::{Admin, Client, ClientConfig, Durability, TableOptions};
use control::MigrationMode;
use fastrand::Rng;
use tests::cluster::Cluster;
use tests::etcd::Etcd;
use tests::history::{Action, Operation, Outcome};
use tests::patience::comes;
use tests::raw::PATIENCE;
use tests::server::{Server, Settings, Tenant};

use super::absences::Absences;
use super::recording::{Town, name};
use super::{library, recording};

const CLIENTS: u32 = 4;
const KEYS: u64 = 16;
/// The same where servers are away for long: the more calls of a key have no answer, the longer it takes to judge it.
const KEYS_WITH_ABSENCES: u64 = 48;
/// Migrations that run at a time.
const MIGRATIONS_AT_ONCE: usize = 3;
/// A run goes on until its clients have been told so much, however slow the machine is, and something has moved.
const TOLD_MIN: usize = 200;

/// What happens meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Troubles {
    None,
    /// The only server is killed and started again, many times.
    Deaths,
    /// Splits, merges, migrations, aborts; etcd stands still.
    Moves,
    /// The same, and the coordinator is killed and started again.
    MovesAndDeaths,
    /// The same, and servers are away in turns, or all at once.
    MovesAndAbsences,
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub splits: u64,
    pub merges: u64,
    pub migrations: u64,
    pub aborts: u64,
    pub pauses: u64,
    pub deaths: u64,
    pub deaths_of_all: u64,
    pub standstills: u64,
    /// Servers that ended since others had what they owned.
    pub replaced: u64,
}

/// See the file's head. Servers end before their etcd.
pub struct FaultyCluster {
    servers: Mutex<Vec<Server>>,
    etcd: Option<Etcd>,
    tenant: Tenant,
    runs: std::sync::atomic::AtomicU32,
    /// Another table whose tablets are split, merged and moved as well.
    pub moved_beside: Option<String>,
}

impl FaultyCluster {
    /// One server alone, or several.
    pub fn start(count: usize) -> FaultyCluster {
        let etcd = (count > 1).then(Etcd::start);
        let metadata = etcd.as_ref().map_or("file".to_owned(), Etcd::metadata);
        let settings = || Settings { metadata: metadata.clone(), ..Settings::default() };
        let servers: Vec<Server> = (0..count).map(|_| Server::start_with(settings())).collect();
        FaultyCluster::of(servers, etcd)
    }

    /// Servers of which each has backups.
    pub fn of_cluster(cluster: Cluster) -> FaultyCluster {
        FaultyCluster::of(cluster.servers, Some(cluster.etcd))
    }

    fn of(servers: Vec<Server>, etcd: Option<Etcd>) -> FaultyCluster {
        let tenant = servers[0].tenant("ann");
        FaultyCluster { servers: Mutex::new(servers), etcd, tenant, runs: 0.into(), moved_beside: None }
    }

    /// Where the servers are, as clients take it.
    pub fn addresses(&self) -> String {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.iter().map(|server| server.address().to_string()).collect::<Vec<_>>().join(",")
    }

    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// A client that knows all servers; its calls end after some seconds.
    pub fn client(&self) -> Client {
        let (addresses, Tenant { name, secret, .. }) = (self.addresses(), &self.tenant);
        let config = ClientConfig { call_timeout: Duration::from_secs(10), ..ClientConfig::default() };
        comes("a session", || Client::connect_with(&addresses, name, secret, config.clone()).ok())
    }

    /// Lets clients use a fresh table for so many seconds, longer if little happens: what they were told.
    pub fn run(
        &self,
        random: &mut Rng,
        seconds: usize,
        (troubles, durability): (Troubles, Durability),
        is_hasty: bool,
    ) -> (Vec<Operation>, Tally) {
        let (addresses, table, name) = self.table(durability);
        let (tenant, secret) = (self.tenant.name.clone(), self.tenant.secret.clone());
        let (began, is_over, told) = (Instant::now(), AtomicBool::new(false), AtomicUsize::new(0));
        let keys = if troubles == Troubles::MovesAndAbsences { KEYS_WITH_ABSENCES } else { KEYS };
        let town = Town { servers: addresses, tenant, secret, table, keys, began, told, is_over, is_hasty };
        let seeds: Vec<u64> = (0..CLIENTS).map(|_| random.u64(..)).collect();
        let (mut history, mut tally) = (Vec::new(), Tally::default());
        thread::scope(|scope| {
            let town = &town;
            let client = |(number, seed): (usize, u64)| {
                // Every second one uses the library, over a path that is as good as the machine's.
                let uses_library = number % 2 == 1 && !town.is_hasty;
                let record = if uses_library { library::record } else { recording::record };
                scope.spawn(move || record(town, number as u32, Rng::with_seed(seed)))
            };
            let clients: Vec<_> = seeds.into_iter().enumerate().map(client).collect();
            let end = began + Duration::from_secs(seconds as u64);
            let lost = self.trouble(random, (town, &name), (troubles, durability), end, &mut tally);
            town.is_over.store(true, Ordering::Relaxed);
            history = clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect();
            // On the disk nothing is lost.
            history.extend(lost.into_iter().filter(|_| durability == Durability::Memory));
        });
        (history, tally)
    }

    /// Where the servers are, and a new table that all of them know.
    fn table(&self, durability: Durability) -> (BTreeMap<u32, std::net::SocketAddr>, u32, String) {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("t{}", self.runs.fetch_add(1, Ordering::Relaxed));
        let options = TableOptions { durability: Some(durability), ..TableOptions::default() };
        let created = servers[0].client(&self.tenant).table_create_with(&name, options);
        let table = created.expect("the table is created");
        let deadline = Instant::now() + PATIENCE;
        for server in &servers[1..] {
            while !server.client(&self.tenant).table_open(&name).is_ok_and(|id| id == table) {
                assert!(Instant::now() < deadline, "the table is not known");
                thread::sleep(Duration::from_millis(20));
            }
        }
        let listed = servers[0].admin().server_list().expect("a list");
        let place = |server: &control::ServerEntry| (server.id, server.tcp.parse().expect("an address"));
        let mut addresses: BTreeMap<_, _> = listed.iter().map(place).collect();
        if addresses.is_empty() {
            addresses.insert(0, servers[0].address());
        }
        (addresses, table, format!("{}/{name}", self.tenant.name))
    }

    /// Does all that until then. What may have been lost of a server that died.
    fn trouble(
        &self,
        random: &mut Rng,
        (town, table): (&Town, &str),
        (troubles, durability): (Troubles, Durability),
        end: Instant,
        tally: &mut Tally,
    ) -> Vec<Operation> {
        let mut lost = Vec::new();
        let mut absences = Absences::new(durability == Durability::Written);
        let middle = Instant::now() + (end - Instant::now()) / 2;
        while Instant::now() < end
            || tally.is_little(troubles, town.told.load(Ordering::Relaxed)) && Instant::now() < end + PATIENCE
        {
            thread::sleep(Duration::from_millis(random.u64(20..150)));
            if troubles == Troubles::None {
                continue;
            }
            let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
            if troubles == Troubles::Deaths {
                if random.u8(0..6) == 0 || tally.deaths == 0 {
                    servers[0].kill();
                    servers[0].restart();
                    tally.deaths += 1;
                }
                continue;
            }
            if troubles == Troubles::MovesAndAbsences {
                absences.go_on(&mut servers, random, tally);
            }
            let any = random.usize(0..servers.len());
            if absences.is_there(any)
                && let Some(mut admin) = admin(&servers[any])
            {
                match &self.moved_beside {
                    Some(beside) if random.u8(0..3) == 0 => {
                        self.meddle(&mut admin, random, (town, beside), &mut Tally::default());
                    }
                    _ => self.meddle(&mut admin, random, (town, table), tally),
                }
            }
            if troubles == Troubles::MovesAndDeaths && tally.deaths == 0 && Instant::now() > middle {
                lost.extend(kill_coordinator(&mut servers, town, table));
                tally.deaths += 1;
            }
        }
        if troubles == Troubles::MovesAndAbsences {
            absences.end(&mut self.servers.lock().unwrap_or_else(PoisonError::into_inner), tally);
        }
        lost
    }

    /// Splits, merges, moves or aborts something, or lets etcd stand still.
    fn meddle(&self, admin: &mut Admin, random: &mut Rng, (town, table): (&Town, &str), tally: &mut Tally) {
        match random.u8(0..16) {
            0 | 1 => {
                // Tablets begin at multiples of 2^32.
                let at = u64::from(random.u32(1..)) << 32;
                tally.splits += u64::from(admin.tablet_split(table, at).is_ok());
            }
            2 => merge(admin, random, table, tally),
            3 => {
                let moving = admin.migration_list().unwrap_or_default();
                if let Some(row) = random.choice(&moving) {
                    tally.aborts += u64::from(admin.migration_abort(row.id).is_ok());
                }
            }
            4 if let Some(etcd) = self.etcd.as_ref().filter(|_| random.bool()) => {
                tally.pauses += 1;
                etcd.pause(true);
                thread::sleep(Duration::from_millis(random.u64(100..1_500)));
                etcd.pause(false);
            }
            _ => migrate(admin, random, (town, table), tally),
        }
    }
}

impl Tally {
    /// Whether clients have been told too little yet, or what is to happen has not.
    fn is_little(&self, troubles: Troubles, told: usize) -> bool {
        let happened = match troubles {
            Troubles::None | Troubles::Deaths => 1,
            Troubles::Moves | Troubles::MovesAndDeaths => self.migrations,
            Troubles::MovesAndAbsences => self.migrations.min(self.deaths).min(self.standstills),
        };
        happened == 0 || told < TOLD_MIN
    }
}

/// The administrator at a server, which may be busy with its own end.
pub fn admin(server: &Server) -> Option<Admin> {
    let [connect_timeout, admin_timeout] = [2, 10].map(Duration::from_secs);
    let config = ClientConfig { connect_timeout, admin_timeout, ..ClientConfig::default() };
    Admin::connect(&server.address().to_string(), &server.admin_secret(), config).ok()
}

fn merge(admin: &mut Admin, random: &mut Rng, table: &str, tally: &mut Tally) {
    let tablets = admin.tablet_list().unwrap_or_default();
    let edges: Vec<u64> =
        tablets.iter().filter(|it| it.table == table && it.first > 0).map(|it| it.first).collect();
    if let Some(&at) = random.choice(&edges) {
        tally.merges += u64::from(admin.tablet_merge(table, at).is_ok());
    }
}

fn migrate(admin: &mut Admin, random: &mut Rng, (town, table): (&Town, &str), tally: &mut Tally) {
    let moving = admin.migration_list().map_or(usize::MAX, |moving| moving.len());
    let tablets = admin.tablet_list().unwrap_or_default();
    let own: Vec<_> = tablets.iter().filter(|tablet| tablet.table == table).collect();
    let numbers: Vec<u32> = town.servers.keys().copied().collect();
    if let (Some(tablet), Some(&target), true) =
        (random.choice(&own), random.choice(&numbers), moving < MIGRATIONS_AT_ONCE)
    {
        let hashes = tablet.first..=tablet.last;
        let modes = [MigrationMode::Rocksteady, MigrationMode::Cooperative];
        let begun = admin.migration_begin(table, hashes, target, modes[random.usize(0..2)]);
        tally.migrations += u64::from(begun.is_ok());
    }
}

/// Kills who coordinates, and starts it again. What it had, and what of it moved, may be lost.
fn kill_coordinator(servers: &mut [Server], town: &Town, table: &str) -> Vec<Operation> {
    let deadline = Instant::now() + PATIENCE;
    let (coordinator, tablets, moving) = loop {
        let mut admin = servers[0].admin();
        if let (Ok(status), Ok(tablets), Ok(moving)) =
            (admin.cluster_status(), admin.tablet_list(), admin.migration_list())
            && status.coordinator > 0
        {
            break (status.coordinator, tablets, moving);
        }
        assert!(Instant::now() < deadline, "nobody coordinates");
        thread::sleep(Duration::from_millis(50));
    };
    let own = tablets.iter().filter(|it| it.server == coordinator && it.table == table);
    let moved = moving.iter().filter(|it| it.source == coordinator || it.target == coordinator);
    let ranges: Vec<_> = own.map(|it| it.first..=it.last).chain(moved.map(|it| it.first..=it.last)).collect();
    let call = town.now_us();
    let address = town.servers[&coordinator];
    let server = servers.iter_mut().find(|server| server.address() == address).expect("one of ours");
    server.kill();
    server.restart();
    (0..town.keys)
        .filter(|&key| ranges.iter().any(|range| range.contains(&store::hash(&name(key)))))
        .map(|key| {
            let (action, outcome) = (Action::Lose, Outcome::Unknown);
            Operation { client: u32::MAX, key, call, end: None, action, outcome }
        })
        .collect()
}
