//! What each worker counts, and what the watchdog saw.

use std::io;

use super::text::{Kind, Text};
use crate::metrics::Counter;
use crate::sched::{cycles, watchdog};
use crate::server::control::Control;

pub(super) fn write<W: FnMut(&[u8]) -> io::Result<()>>(
    control: &Control,
    text: &mut Text<W>,
) -> io::Result<()> {
    for counter in Counter::ALL {
        text.family(&family(*counter), Kind::Counter, counter.text())?;
        for (core, metrics) in control.metrics.iter().enumerate() {
            let (core, value) = (core.to_string(), metrics.value(*counter));
            let labels = [("core", core.as_str())];
            match counter {
                Counter::InvocationCycles => text.seconds(&labels, "", cycles::to_ns(value))?,
                Counter::BusyUs => text.seconds(&labels, "", value.saturating_mul(1000))?,
                _ => text.sample(&labels, value)?,
            }
        }
    }
    text.family(
        "splinter_workers_ended",
        Kind::Gauge,
        "Workers that have ended, though the server has not.",
    )?;
    text.sample(&[], control.workers_ended() as u64)?;
    let (nudges, stalls) = watchdog::counts();
    text.family(
        "splinter_watchdog_nudges_total",
        Kind::Counter,
        "Times that a worker was signalled since it stayed in one poll.",
    )?;
    text.sample(&[], nudges)?;
    text.family(
        "splinter_watchdog_stalls_total",
        Kind::Counter,
        "Times that a worker stayed in one poll in spite of that.",
    )?;
    text.sample(&[], stalls)
}

/// The name with its unit where Prometheus wants it.
fn family(counter: Counter) -> String {
    let name = match counter {
        Counter::BytesReceived => "received_bytes",
        Counter::BytesSent => "sent_bytes",
        Counter::InvocationCycles => "invocation_seconds",
        Counter::BusyUs => "busy_seconds",
        counter => counter.name(),
    };
    format!("splinter_core_{name}_total")
}
