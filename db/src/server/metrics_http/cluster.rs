//! Metrics of a server in a cluster: its registration, and its migrations. A server outside a cluster has none.

use std::io;

use cluster::metadata::Side;
use cluster::moment::Moment;

use super::text::{Kind, MetricsText};
use crate::server::control::Control;
use crate::server::migrations::{Figure, Migrations};

pub(super) fn write<W: FnMut(&[u8]) -> io::Result<()>>(
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
