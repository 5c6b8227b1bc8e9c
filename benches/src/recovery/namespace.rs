//! The victim's network namespace, with a pair of virtual interfaces to the other servers, which can be cut, so that packets in
//! either direction are lost and no other server is told.

use std::process::Command;

use crate::process::Keeper;

/// The addresses of the two interfaces: that of the others, and the victim's.
pub(super) const OTHERS: &str = "10.97.0.1";
const VICTIM: &str = "10.97.0.2";
/// Takes all away, whether the bench was killed or has ended.
const CLEAR: &str = "ip netns pids $1 2>/dev/null | xargs -r kill -9; ip link del ${1}a 2>/dev/null; ip netns del $1 2>/dev/null";

/// The namespace, until it is dropped.
pub(super) struct Namespace {
    namespace: String,
    _keeper: Keeper,
}

impl Namespace {
    /// Makes it. Needs the rights of an administrator.
    pub(super) fn make() -> Result<Self, String> {
        let namespace = format!("spl-{}", std::process::id());
        let keeper = Keeper::start(CLEAR, &[&namespace])?;
        let (near, far) = (format!("{namespace}a"), format!("{namespace}b"));
        ip(&["netns", "add", &namespace])?;
        ip(&["link", "add", &near, "type", "veth", "peer", "name", &far, "netns", &namespace])?;
        ip(&["addr", "add", &format!("{OTHERS}/24"), "dev", &near])?;
        ip(&["link", "set", &near, "up"])?;
        ip(&["-n", &namespace, "addr", "add", &format!("{VICTIM}/24"), "dev", &far])?;
        ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
        ip(&["-n", &namespace, "link", "set", &far, "up"])?;
        // Nobody has to ask who has the other address: behind a switch that goes on, nobody learns that it is gone.
        let own = ip(&["-n", &namespace, "-br", "link", "show", "dev", &far])?;
        let hardware = own.split_whitespace().nth(2).ok_or("an interface without an address")?;
        ip(&["neigh", "replace", VICTIM, "lladdr", hardware, "dev", &near, "nud", "permanent"])?;
        Ok(Self { namespace, _keeper: keeper })
    }

    /// Words before a program that is to run there.
    pub(super) fn within(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.namespace].map(String::from).to_vec()
    }

    /// Where the victim listens.
    pub(super) fn listen() -> String {
        format!("{VICTIM}:0")
    }

    /// Loses all packets from now on.
    pub(super) fn cut(&self) -> Result<(), String> {
        ip(&["-n", &self.namespace, "link", "set", &format!("{}b", self.namespace), "down"]).map(drop)
    }
}

/// Runs `ip`, and returns what it printed.
fn ip(words: &[&str]) -> Result<String, String> {
    let output = Command::new("ip").args(words).output();
    let output = output.map_err(|error| format!("there is no ip (iproute2): {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("ip {}: {why}; a network namespace needs an administrator", words.join(" ")))
}
