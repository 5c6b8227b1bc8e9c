//! A tenant whose records stand for as long as a test runs, and whose functions run in modules.
//!
//! The neighbours of a stage work in threads of their own, natively; this one is asked by the test itself, between two
//! attacks, so that each attack is followed by its questions.

use client::Client;
use tests::server::{Server, Tenant};

use super::latency::Latency;
use super::modules::limit;
use super::stage::{in_time, install_folder};

/// Records that are never written again.
const CANARIES: u32 = 16;
const CANARY_BYTES: usize = 100;

/// See the file's head.
pub struct Victim {
    pub tenant: Tenant,
    client: Client,
    table: u32,
    /// The keys of all canaries as `ext/checksum` takes them, and what it answered at first.
    list: Vec<u8>,
    checksum: Vec<u8>,
    rounds: u32,
    native: Latency,
    in_modules: Latency,
}

fn canary(number: u32) -> Vec<u8> {
    vec![number as u8 ^ 0x5a; CANARY_BYTES]
}

impl Victim {
    /// Sets up the tenant `victim`.
    pub fn begin(server: &Server) -> Self {
        let tenant = server.tenant("victim");
        limit(server, &tenant.name, &[("sandbox", 1)]);
        let mut client = server.client(&tenant);
        let table = client.table_create("canaries").expect("a table");
        install_folder(&mut client, "checksum");
        let mut list = Vec::new();
        for number in 0..CANARIES {
            client.put(table, &number.to_le_bytes(), &canary(number)).expect("a put");
            list.extend([&[4, 0], &number.to_le_bytes()[..]].concat());
        }
        let (native, in_modules) = (Latency::default(), Latency::default());
        let mut victim =
            Self { tenant, client, table, list, checksum: Vec::new(), rounds: 0, native, in_modules };
        victim.checksum = victim.sum();
        assert_eq!(victim.checksum[4..8], CANARIES.to_le_bytes(), "all are found");
        victim
    }

    fn sum(&mut self) -> Vec<u8> {
        let Self { client, table, list, in_modules, .. } = self;
        let mut call = || in_modules.of(|| client.invoke("checksum.checksum", *table, b"", list));
        in_time(&mut call).expect("the victim is served")
    }

    /// Each canary is as it was, to a get and to a function, and a record that was written is found.
    pub fn is_well(&mut self) {
        let Self { client, table, native, rounds, .. } = self;
        *rounds += 1;
        let number = *rounds % CANARIES;
        let found = native.of(|| client.get(*table, &number.to_le_bytes())).expect("the victim is served");
        assert_eq!(found.expect("a canary").value, canary(number), "canary {number}");
        let (key, value) = (b"round", rounds.to_le_bytes());
        native.of(|| client.put(*table, key, &value)).expect("the victim is served");
        let found = native.of(|| client.get(*table, key)).expect("the victim is served");
        assert_eq!(found.expect("it was written").value, value);
        assert_eq!(self.sum(), self.checksum, "the sum over all canaries");
    }

    /// Nothing was lost or added; prints how long its answers took.
    pub fn ends_well(mut self) {
        for _ in 0..CANARIES {
            self.is_well();
        }
        let objects = self.client.table_stat("canaries").expect("an answer").objects;
        assert_eq!(objects, u64::from(CANARIES) + 1, "the canaries and what the victim writes");
        self.print_latencies();
    }

    /// Begins to note how long its answers take.
    pub fn forget_latencies(&mut self) {
        (self.native, self.in_modules) = (Latency::default(), Latency::default());
    }

    /// Prints how long its answers took.
    pub fn print_latencies(&mut self) {
        self.native.print("victim, native requests");
        self.in_modules.print("victim, functions in modules");
    }
}
