//! Metrics of client streams: by holder, and those closed or refused.

use std::io;

use super::text::{Kind, MetricsText};
use crate::server::control::Control;

pub(super) fn write<W: FnMut(&[u8]) -> io::Result<()>>(
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
