//! Metrics of each worker, and of the watchdog.

use std::io;

use guest::{cycles, watchdog};

use super::text::{Kind, MetricsText};
use crate::metrics::Counter;
use crate::server::control::Control;

pub(super) fn write<W: FnMut(&[u8]) -> io::Result<()>>(
    control: &Control,
    text: &mut MetricsText<W>,
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
        "Workers that have ended although the server has not.",
    )?;
    text.sample(&[], control.workers_ended() as u64)?;
    write_waits(control, text)?;
    let (nudges, stalls) = watchdog::counts();
    text.family(
        "splinter_watchdog_nudges_total",
        Kind::Counter,
        "Times that a worker stayed in one poll and was signalled.",
    )?;
    text.sample(&[], nudges)?;
    text.family(
        "splinter_watchdog_stalls_total",
        Kind::Counter,
        "Times that a worker stayed in one poll despite the signal.",
    )?;
    text.sample(&[], stalls)
}

/// Writes the metrics of requests that wait for objects in transit.
fn write_waits<W: FnMut(&[u8]) -> io::Result<()>>(
    control: &Control,
    text: &mut MetricsText<W>,
) -> io::Result<()> {
    let help = "Requests that wait for objects in transit.";
    text.family("splinter_core_requests_waiting", Kind::Gauge, help)?;
    for (core, metrics) in control.metrics.iter().enumerate() {
        text.sample(&[("core", &core.to_string())], metrics.waits().waiting())?;
    }
    let help = "Time that requests waited for objects in transit.";
    text.family("splinter_core_request_wait_seconds", Kind::Summary, help)?;
    for (core, metrics) in control.metrics.iter().enumerate() {
        let (core, waits) = (core.to_string(), metrics.waits());
        for (quantile, thousandths) in [("0.5", 500), ("0.99", 990), ("0.999", 999)] {
            let labels = [("core", core.as_str()), ("quantile", quantile)];
            text.seconds(&labels, "", waits.quantile_us(thousandths).saturating_mul(1000))?;
        }
        text.part(&[("core", &core)], "_count", waits.count())?;
    }
    Ok(())
}

/// Returns the name of the metric, with its unit as Prometheus prefers it.
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
