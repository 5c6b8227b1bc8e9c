//! Servers of the tests over another transport than the kernel's loopback, and tenants in another form than a new one's.
//!
//! `SPLINTER_TEST_TRANSPORT` is what servers offer (`--transport`) unless a test is about that; with `shm` in it the clients
//! of the tests insist on shared memory, so that no test passes over UDP unseen.
//!
//! `SPLINTER_TEST_SANDBOX` is the form in which invocations of the tests' tenants run, `native` or `wasm`.
//!
//! In another network namespace:
//! `SPLINTER_TEST_SERVE` is the command through which servers are started there, `SPLINTER_TEST_ADDRESS` the address under
//! which they are reached from here, `SPLINTER_TEST_DPDK` the arguments of DPDK's environment, in which `%` stands for a
//! word of each server's own. Only tests that name no address of their own work there.
//!
//! `scripts/test` sets these and runs the ordinary tests so; without them nothing changes.

use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;

use client::Transport;

/// The limit that chooses the form of a tenant's invocations.
pub const SANDBOX: &str = "sandbox";

/// What servers offer where a test does not care, as the command line takes it.
pub fn offered() -> String {
    given("SPLINTER_TEST_TRANSPORT").unwrap_or_else(|| "udp".to_owned())
}

/// How clients speak with servers where a test does not care.
pub fn wanted() -> Transport {
    if offered().split(',').any(|way| way == "shm") { Transport::Shm } else { Transport::Auto }
}

/// The value of the limit `sandbox` for tenants, if it is to be another than a new tenant's.
///
/// # Panics
/// When the environment names no form.
pub fn sandbox() -> Option<u64> {
    let given = given("SPLINTER_TEST_SANDBOX")?;
    let words = client::limit_words(SANDBOX).expect("its values are words");
    let value = words.iter().position(|word| *word == given).expect("SPLINTER_TEST_SANDBOX is a form");
    Some(value as u64)
}

fn given(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// See the file's head.
#[derive(Debug)]
pub struct Elsewhere {
    /// Where servers are reached.
    pub ip: IpAddr,
    serve: Vec<String>,
    dpdk: Option<String>,
}

impl Elsewhere {
    /// What the environment says.
    ///
    /// # Panics
    /// When it says something that makes no sense.
    pub fn given() -> Option<&'static Elsewhere> {
        static GIVEN: OnceLock<Option<Elsewhere>> = OnceLock::new();
        let read = || {
            let ip = given("SPLINTER_TEST_ADDRESS")?.parse().expect("SPLINTER_TEST_ADDRESS is an address");
            let serve = given("SPLINTER_TEST_SERVE").unwrap_or_default();
            let serve = serve.split_whitespace().map(str::to_owned).collect();
            Some(Elsewhere { ip, serve, dpdk: given("SPLINTER_TEST_DPDK") })
        };
        GIVEN.get_or_init(read).as_ref()
    }

    /// The same port there.
    pub fn at(&self, address: SocketAddr) -> SocketAddr {
        SocketAddr::new(self.ip, address.port())
    }

    /// The command that a server is started through, `wrapper` within it.
    pub fn wrapper(&self, wrapper: &[String]) -> Vec<String> {
        self.serve.iter().chain(wrapper).cloned().collect()
    }

    /// What a server at `address` is told besides.
    pub fn arguments(&self, address: SocketAddr) -> Vec<String> {
        let Some(dpdk) = &self.dpdk else { return Vec::new() };
        let own = format!("{}-{}", std::process::id(), address.port());
        let dpdk = dpdk.replace('%', &own);
        ["--dpdk", &dpdk, "--dpdk-address", &self.ip.to_string()].map(str::to_owned).to_vec()
    }
}
