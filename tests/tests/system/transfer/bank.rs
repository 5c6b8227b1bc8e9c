//! Accounts under a server, and what its clients know of them: what was moved, what was acknowledged.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use builder::Package;
use client::{Client, Condition, Durability, Error, PackageFile, Status, TableOptions};
use tests::server::{Server, Settings, Tenant};

/// What each account begins with.
pub const BALANCE: i64 = 1_000;
/// Bytes of the record of an account.
pub const RECORD_BYTES: usize = 16;

/// The economy.
pub struct Bank {
    pub server: Server,
    pub tenant: Tenant,
    pub table: u32,
    pub accounts: u64,
    /// Transfers that were handed to a client, and those whose end is known.
    pub submitted: AtomicU64,
    pub acknowledged: AtomicU64,
    /// The clients have ended.
    pub is_over: AtomicBool,
}

/// What an audit found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audit {
    pub balances: i64,
    pub transfers: u64,
    pub found: u32,
}

impl Bank {
    /// A server of two cores with that many accounts, in a table of this durability.
    pub fn open(accounts: u64, durability: Durability) -> Self {
        let server = Server::start_with(Settings { cores: 2, ..Settings::default() });
        let tenant = server.tenant("bank");
        let mut client = server.client(&tenant);
        let options = TableOptions { durability: Some(durability), ..TableOptions::default() };
        let table = client.table_create_with("accounts", options).expect("a table");
        for name in ["ycsbt", "misbehave"] {
            install(&mut client, name);
        }
        for number in 0..accounts {
            let balance = BALANCE.to_le_bytes();
            client.invoke("ycsbt.open", table, &number.to_le_bytes(), &balance).expect("an account");
        }
        let (submitted, acknowledged) = (AtomicU64::new(0), AtomicU64::new(0));
        let is_over = AtomicBool::new(false);
        Self { server, tenant, table, accounts, submitted, acknowledged, is_over }
    }

    /// Where a core takes datagrams: its port is the server's, counted on.
    pub fn core(&self, core: u16) -> SocketAddr {
        let address = self.server.address();
        SocketAddr::new(address.ip(), address.port() + core)
    }

    /// What there is in all, always.
    pub fn total(&self) -> i64 {
        BALANCE * self.accounts as i64
    }

    /// Adds all accounts up as at one moment; `None` after a conflict.
    pub fn audit(&self, client: &mut Client) -> Option<Audit> {
        let range = [&0_u64.to_le_bytes()[..], &(self.accounts as u32).to_le_bytes()].concat();
        match client.invoke("ycsbt.audit", self.table, b"", &range) {
            Ok(reply) => Some(Audit {
                balances: i64::from_le_bytes(reply[..8].try_into().unwrap()),
                transfers: u64::from_le_bytes(reply[8..16].try_into().unwrap()),
                found: u32::from_le_bytes(reply[16..].try_into().unwrap()),
            }),
            Err(Error::Refused { status: Status::Conflict, .. }) => None,
            Err(error) => panic!("no audit: {error}"),
        }
    }

    /// Audits, and writes accounts anew as they are, until the clients have ended. Says how many audits and
    /// rewrites there were.
    pub fn watch(&self) -> (u64, u64) {
        let mut client = self.server.client(&self.tenant);
        let (mut audits, mut rewrites) = (0, 0);
        let mut transfers_before = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            let acknowledged = self.acknowledged.load(Ordering::SeqCst);
            if let Some(audit) = self.audit(&mut client) {
                let submitted = self.submitted.load(Ordering::SeqCst);
                assert_eq!(audit.balances, self.total(), "money was made or lost: {audit:?}");
                assert_eq!(u64::from(audit.found), self.accounts);
                assert!(audit.transfers >= transfers_before, "{audit:?} after {transfers_before}");
                assert!((acknowledged..=submitted).contains(&audit.transfers), "{audit:?}: {acknowledged}");
                transfers_before = audit.transfers;
                audits += 1;
            }
            let key = (audits % self.accounts).to_le_bytes();
            let account = client.get(self.table, &key).expect("a get").expect("accounts stay");
            let as_it_was = Condition::Version(account.version);
            match client.put_if(self.table, &key, &account.value, as_it_was) {
                Ok(version) => {
                    assert!(version > account.version, "versions grow");
                    rewrites += 1;
                }
                Err(Error::ConditionFailed { current }) => assert!(current > account.version),
                Err(error) => panic!("no put: {error}"),
            }
        }
        (audits, rewrites)
    }

    /// A number that the server counts, summed over its cores.
    pub fn counted(&self, name: &str) -> u64 {
        let statistics = self.server.admin().statistics().expect("the administrator is answered");
        let found = statistics.iter().find(|statistic| statistic.name == name);
        found.unwrap_or_else(|| panic!("nobody counts {name}")).value
    }

    /// All accounts: balance, and transfers paid.
    pub fn accounts(&self) -> Vec<(i64, u64)> {
        let mut client = self.server.client(&self.tenant);
        let read = |number: u64| {
            let record =
                client.get(self.table, &number.to_le_bytes()).expect("a get").expect("accounts stay");
            account(&record.value)
        };
        (0..self.accounts).map(read).collect()
    }
}

/// Balance and transfers of a record.
pub fn account(record: &[u8]) -> (i64, u64) {
    assert_eq!(record.len(), RECORD_BYTES, "the record of an account");
    let (balance, transfers) = record.split_at(8);
    (i64::from_le_bytes(balance.try_into().unwrap()), u64::from_le_bytes(transfers.try_into().unwrap()))
}

fn install(client: &mut Client, name: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the root");
    let package = Package::from_directory(&root.join("ext").join(name)).expect("a package");
    let files = package.files().map(|(path, bytes)| PackageFile { path, bytes }).collect();
    client.extension_install(name, files).expect("it is installed");
}
