//! Whether a server of a cluster is known to be there. One that is alone has nothing to show.

use std::io;
use std::time::Instant;

use super::text::{Kind, Text};
use crate::server::control::Control;

pub(super) fn write<W: FnMut(&[u8]) -> io::Result<()>>(
    control: &Control,
    text: &mut Text<W>,
) -> io::Result<()> {
    if !control.metadata.records().is_shared() {
        return Ok(());
    }
    text.family(
        "splinter_cluster_registered",
        Kind::Gauge,
        "1 while the lease is held with which the server is registered in its cluster.",
    )?;
    text.sample(&[], u64::from(control.interim.is_held(Instant::now())))
}
