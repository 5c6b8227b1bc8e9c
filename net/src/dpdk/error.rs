//! Why there is no port over DPDK.

use std::fmt;

/// See the file's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DpdkError {
    /// The environment was begun before in this process; DPDK begins it once.
    BegunBefore,
    /// The environment did not begin: wrong arguments, no memory, another process with the same prefix.
    Environment(String),
    /// The arguments brought no device.
    NoDevice,
    /// The device refused a part of its set-up.
    Device {
        /// Which part.
        part: &'static str,
        /// What DPDK says about it.
        text: String,
    },
    /// The memory of the environment does not hold the packets of the ports.
    NoMemory(String),
    /// What is asked for cannot be.
    Configuration(String),
}

impl fmt::Display for DpdkError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BegunBefore => write!(formatter, "DPDK can begin only once in a process"),
            Self::Environment(text) => write!(formatter, "DPDK does not begin (see what it printed): {text}"),
            Self::NoDevice => {
                write!(formatter, "DPDK found no device: name one, as with --vdev or --allow")
            }
            Self::Device { part, text } => write!(formatter, "the device refused its {part}: {text}"),
            Self::NoMemory(text) => {
                write!(formatter, "no memory for packets, give DPDK more with -m: {text}")
            }
            Self::Configuration(text) => formatter.write_str(text),
        }
    }
}

impl std::error::Error for DpdkError {}
