//! Metrics of the server as a whole: its workers and the watchdog, its memory, its streams and shared-memory channels,
//! and its part in a cluster. A server without the shared-memory listener, or outside a cluster, has none of those.

use std::io;
use std::sync::atomic::Ordering;

use cluster::metadata::Side;
use cluster::moment::Moment;
use guest::{cycles, watchdog};

use super::text::{Kind, MetricsText};
use crate::control_plane::Control;
use crate::control_plane::listener_status::{ChannelFigure, LINK_COUNTERS, LINKS, ListenerStatus};
use crate::control_plane::migrations::{Figure, Migrations};
use crate::durability::figures::LogFigure;
use crate::metrics::Counter;

/// Writes the metrics of this server.
pub(super) fn write<W: FnMut(&[u8]) -> io::Result<()>>(
    control: &Control,
    text: &mut MetricsText<W>,
) -> io::Result<()> {
    write_cluster(control, text)?;
    write_cores(control, text)?;
    write_links(control, text)?;
    write_store(control, text)?;
    write_log(control, text)?;
    write_streams(control, text)
}

/// Writes the metrics of the log of durable tables.
fn write_log<W: FnMut(&[u8]) -> io::Result<()>>(
    control: &Control,
    text: &mut MetricsText<W>,
) -> io::Result<()> {
    let Some(log) = &control.log else { return Ok(()) };
    for LogFigure { name, help, is_total, value } in log.figures.list(&control.store) {
        let (kind, end) = if is_total { (Kind::Counter, "_total") } else { (Kind::Gauge, "") };
        text.family(&format!("splinter_{name}{end}"), kind, help)?;
        text.sample(&[], value)?;
    }
    Ok(())
}

/// Writes the metrics of the registration in a cluster, and of migrations.
fn write_cluster<W: FnMut(&[u8]) -> io::Result<()>>(
    control: &Control,
    text: &mut MetricsText<W>,
) -> io::Result<()> {
    if !control.metadata.records().is_shared() {
        return Ok(());
    }
    text.family(
        "splinter_cluster_registered",
        Kind::Gauge,
        "1 while the server holds the lease of its registration in the cluster.",
    )?;
    text.sample(&[], u64::from(control.lease_cache.is_held(Moment::now())))?;
    text.family(
        "splinter_cluster_metadata_copied",
        Kind::Gauge,
        "The last change of the metadata that the copy in the data directory has.",
    )?;
    text.sample(&[], control.metadata_copied.load(Ordering::Relaxed))?;
    control.migrations.as_ref().map_or(Ok(()), |migrations| write_migrations(migrations, text))
}

const SIDES: [(&str, Side); 2] = [("source", Side::Source), ("target", Side::Target)];

fn write_migrations<W: FnMut(&[u8]) -> io::Result<()>>(
    migrations: &Migrations,
    text: &mut MetricsText<W>,
) -> io::Result<()> {
    let shown = migrations.shown();
    text.family(
        "splinter_migrations",
        Kind::Gauge,
        "Tablets that move to or from the server, including waiting ones.",
    )?;
    for (name, side) in SIDES {
        let count = shown.iter().filter(|shown| shown.side == side).count();
        text.sample(&[("side", name)], count as u64)?;
    }
    let counters = [
        ("bytes", "Bytes of objects sent or received.", Figure::Bytes),
        ("objects", "Objects received and stored.", Figure::Objects),
        ("pulls", "Pulls answered or sent.", Figure::Pulls),
        ("priority_pulls", "Pulls for objects that requests waited for.", Figure::PriorityPulls),
        ("second_reads", "Reads that the source answered for hashes that had left it.", Figure::SecondReads),
        (
            "second_read_bytes",
            "Bytes of messages for second reads: reads at the source, progress reports at the target.",
            Figure::SecondReadBytes,
        ),
        ("late_objects", "Objects that were outdated when they arrived.", Figure::Late),
        ("damaged_objects", "Objects that were corrupted when they arrived and are lost.", Figure::Damaged),
    ];
    for (name, help, figure) in counters {
        text.family(&format!("splinter_migration_{name}_total"), Kind::Counter, help)?;
        for (side_name, side) in SIDES {
            text.sample(&[("side", side_name)], migrations.totals(side).get(figure))?;
        }
    }
    Ok(())
}

/// Writes the metrics of each worker, and of the watchdog.
fn write_cores<W: FnMut(&[u8]) -> io::Result<()>>(
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
    let help = "Instances of WebAssembly modules, in use or kept for the next invocation.";
    text.family("splinter_core_instances", Kind::Gauge, help)?;
    for (core, metrics) in control.metrics.iter().enumerate() {
        // Dropped ones first: an instance is made before it is dropped.
        let dropped = metrics.value(Counter::InstancesDropped);
        let made = metrics.value(Counter::InstancesMade);
        text.sample(&[("core", &core.to_string())], made.saturating_sub(dropped))?;
    }
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

/// Writes the metrics of shared-memory channels of local clients.
fn write_links<W: FnMut(&[u8]) -> io::Result<()>>(
    control: &Control,
    text: &mut MetricsText<W>,
) -> io::Result<()> {
    let Some(status) = &control.shm_listener else { return Ok(()) };
    text.family(&format!("splinter_{}", LINKS.name), Kind::Gauge, LINKS.text)?;
    samples(status, &LINKS, text)?;
    for figure in &LINK_COUNTERS {
        text.family(&format!("splinter_{}_total", figure.name), Kind::Counter, figure.text)?;
        samples(status, figure, text)?;
    }
    text.family("splinter_shm_links_refused_total", Kind::Counter, "Shared-memory channels refused.")?;
    text.sample(&[], status.refused())
}

fn samples<W: FnMut(&[u8]) -> io::Result<()>>(
    status: &ListenerStatus,
    figure: &ChannelFigure,
    text: &mut MetricsText<W>,
) -> io::Result<()> {
    for (core, value) in status.of_cores(figure).enumerate() {
        text.sample(&[("core", &core.to_string())], value)?;
    }
    Ok(())
}

/// Writes the metrics of memory: the store's segments, objects and indexes.
fn write_store<W: FnMut(&[u8]) -> io::Result<()>>(
    control: &Control,
    text: &mut MetricsText<W>,
) -> io::Result<()> {
    let store = control.store.statistics();
    let gauges = [
        ("memory_bytes", "Memory limit of objects and indexes together.", store.memory_bytes),
        ("segment_bytes", "Bytes of one segment.", store.segment_bytes),
        ("segments", "Segments, including free ones.", store.segments),
        ("segments_free", "Segments that are free.", store.segments_free),
        (
            "segments_pending_reclamation",
            "Dead segments that wait for readers.",
            store.segments_pending_reclamation,
        ),
        ("objects", "Live objects.", store.objects),
        ("object_bytes", "Bytes of live objects.", store.object_bytes),
        ("index_bytes", "Bytes of all indexes.", store.index_bytes),
        ("index_slots", "Slots for objects in all indexes.", store.index_slots),
        ("free_bytes", "Free bytes of the log's memory.", store.cleaner.free_bytes),
        ("dead_bytes", "Dead bytes in full segments.", store.cleaner.dead_bytes),
        ("tables", "Tables, including retired ones until their memory is free.", store.tables),
        ("oldest_pin_age", "Retirements since the oldest pin began.", store.oldest_pin_age),
    ];
    for (name, help, value) in gauges {
        text.family(&format!("splinter_store_{name}"), Kind::Gauge, help)?;
        text.sample(&[], value)?;
    }
    let counters = [
        ("segments_cleaned", "Segments that the cleaner has emptied.", store.segments_cleaned),
        ("written_bytes", "Bytes of objects that writers have written.", store.cleaner.written_bytes),
        ("examined_bytes", "Bytes that the cleaner has examined.", store.cleaner.examined_bytes),
        (
            "write_refusals",
            "Writes answered with a retry or refused for lack of memory.",
            store.cleaner.refusals,
        ),
        ("damaged_objects", "Corrupted objects that the cleaner removed.", store.cleaner.damaged_objects),
        ("objects_expired", "Objects that were removed because they had expired.", store.objects_expired),
        (
            "objects_evicted",
            "Objects that tables evicted to keep within their budgets.",
            store.objects_evicted,
        ),
        ("relocated_bytes", "Bytes that the cleaner has copied.", store.bytes_relocated),
    ];
    for (name, help, value) in counters {
        text.family(&format!("splinter_store_{name}_total"), Kind::Counter, help)?;
        text.sample(&[], value)?;
    }
    Ok(())
}

/// Writes the metrics of client streams: by holder, and those closed or refused.
fn write_streams<W: FnMut(&[u8]) -> io::Result<()>>(
    control: &Control,
    text: &mut MetricsText<W>,
) -> io::Result<()> {
    let census = control.streams.census();
    text.family("splinter_streams", Kind::Gauge, "Streams of clients, by holder.")?;
    let held = [
        ("unopened", census.unopened),
        ("leaving", census.leaving),
        ("tenants", census.tenants),
        ("operators", census.operators),
    ];
    for (holder, streams) in held {
        text.sample(&[("holder", holder)], streams as u64)?;
    }
    let counts = [
        ("evicted", "Streams that had opened nothing, closed for a new one.", census.counts.evicted),
        ("turned_away", "Streams refused because no place was free.", census.counts.turned_away),
        ("refused", "Streams refused to a tenant by a limit.", census.counts.refused),
        (
            "ceded",
            "Streams of the tenant with the most, closed for a tenant with fewer.",
            census.counts.ceded,
        ),
    ];
    for (name, help, value) in counts {
        text.family(&format!("splinter_streams_{name}_total"), Kind::Counter, help)?;
        text.sample(&[], value)?;
    }
    Ok(())
}
