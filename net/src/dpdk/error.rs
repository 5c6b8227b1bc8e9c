//! Errors of ports over DPDK.

use std::fmt;

/// The reason why there is no port over DPDK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DpdkError {
    /// The environment was started before in this process; DPDK starts it only once.
    BegunBefore,
    /// The environment did not start: wrong arguments, no memory, another process with the same prefix.
    Environment(String),
    /// The arguments created no device.
    NoDevice,
    /// The device refused a part of its set-up.
    Device {
        /// The part that was refused.
        part: &'static str,
        /// DPDK's message about it.
        text: String,
    },
    /// The memory of the environment is too small for the packets of the ports.
    NoMemory(String),
    /// The configuration is impossible.
    Configuration(String),
}

impl fmt::Display for DpdkError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BegunBefore => write!(formatter, "DPDK can start only once in a process"),
            Self::Environment(text) => write!(formatter, "DPDK does not start (see its output): {text}"),
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
