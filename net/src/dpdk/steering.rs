//! Which packet goes to which port: by the card's rules, by one queue for each port, or by the ports themselves.
//!
//! ```text
//!   flow rules      card: UDP port base + i ──▶ queue i ──▶ port i          mlx5, i40e, ice
//!   queue per port  peer's sender ─ queue i of the ring ──▶ port i          memif, vhost, virtio-user
//!   software        any queue ──▶ whichever port polls it ─ hands over ──▶ port i
//! ```
//! Whatever is active, a packet that comes to another port than it names is handed over; the ways differ in how often.
//! Rules are tried by making them: there are devices that find a rule valid and then refuse it.

use std::fmt;

use super::error::DpdkError;
use super::ethdev::Ethdev;

/// Drivers of rings between two processes, where the sender's queue is the receiver's.
const RINGS: [&str; 3] = ["net_memif", "net_vhost", "net_virtio_user"];

/// How packets find their port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steering {
    /// There is one port, to which all go.
    OnePort,
    /// The card has a rule for each port.
    FlowRules,
    /// Each port has a queue of a ring, which senders choose.
    QueuePerPort,
    /// Ports poll what queues there are, and hand over what is another's.
    Software,
}

impl Steering {
    /// A word for statistics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OnePort => "one_port",
            Self::FlowRules => "flow_rules",
            Self::QueuePerPort => "queue_per_port",
            Self::Software => "software",
        }
    }
}

impl fmt::Display for Steering {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::OnePort => "one port",
            Self::FlowRules => "flow rules of the card",
            Self::QueuePerPort => "a queue for each port",
            Self::Software => "handed over in software",
        })
    }
}

/// Finds the best way of a started device with a queue for each of the ports from `base` on, or with fewer. Says besides
/// why there are no rules, where they were tried.
pub(super) fn choose(
    ethdev: &Ethdev,
    driver: &str,
    (base, ports, queues): (u16, usize, usize),
) -> (Steering, Option<DpdkError>) {
    if ports == 1 {
        return (Steering::OnePort, None);
    }
    if queues < ports {
        return (Steering::Software, None);
    }
    if RINGS.contains(&driver) {
        return (Steering::QueuePerPort, None);
    }
    match make_rules(ethdev, base, ports) {
        Ok(()) => (Steering::FlowRules, None),
        Err(error) => (Steering::Software, Some(error)),
    }
}

fn make_rules(ethdev: &Ethdev, base: u16, ports: usize) -> Result<(), DpdkError> {
    let rules = (0..ports).try_for_each(|index| {
        let port = base + index as u16;
        ethdev.steer(port, queue_of(port, ports) as u16)
    });
    if rules.is_err() {
        // Some may have been made: all go by one way.
        ethdev.unsteer();
    }
    rules
}

/// The queue, of so many, in which packets of a serving UDP port travel in both directions. Both ends of a ring know it
/// without a word.
#[inline]
pub(super) fn queue_of(port: u16, queues: usize) -> usize {
    usize::from(port) % queues
}
