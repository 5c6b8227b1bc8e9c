//! The way of packets to their ports: by the card's rules, by one queue per port, or by the ports.
//!
//! ```text
//!   flow rules      card: UDP port base + i ──▶ queue i ──▶ port i          mlx5, i40e, ice
//!   queue per port  peer's sender ─ queue i of the ring ──▶ port i          memif, vhost, virtio-user
//!   software        any queue ──▶ whichever port polls it ─ hands over ──▶ port i
//! ```
//! In every mode, a packet that arrives at another port than its own is handed over; the modes differ in how often.
//! Rules are tested by creating them: some devices declare a rule valid and then refuse it.

use std::fmt;

use super::DpdkError;
use super::ethdev::Ethdev;

/// Drivers of rings between two processes, where the sender's queue is the receiver's.
const RINGS: [&str; 3] = ["net_memif", "net_vhost", "net_virtio_user"];

/// The way in which packets find their port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steering {
    /// There is one port for all packets.
    OnePort,
    /// The card has a rule for each port.
    FlowRules,
    /// Each port has a queue of a ring, which senders choose.
    QueuePerPort,
    /// Ports poll the available queues, and hand over the packets of other ports.
    Software,
}

impl Steering {
    /// Returns a word for statistics.
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

/// Chooses the best mode for a started device with a queue for each port from `base` on, or with fewer. Also returns
/// the reason why there are no rules, if they were tried.
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
        // Removes the rules made so far, so that all packets are steered in one way.
        ethdev.unsteer();
    }
    rules
}

/// Returns the queue, of `queues`, for packets of a serving UDP port in both directions. Both ends of a ring compute
/// it without communication.
#[inline]
pub(super) fn queue_of(port: u16, queues: usize) -> usize {
    usize::from(port) % queues
}
