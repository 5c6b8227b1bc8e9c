//! Metrics of shared-memory channels of local clients. A server without the listener has none.

use std::io;

use super::text::{Kind, MetricsText};
use crate::server::control::Control;
use crate::server::shm_listener::{ChannelFigure, LINK_COUNTERS, LINKS, ListenerStatus};

pub(super) fn write<W: FnMut(&[u8]) -> io::Result<()>>(
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
