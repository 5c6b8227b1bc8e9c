//! The limit of client streams: the configured one, or fewer if the process may open too few files or threads. A
//! server that could not accept any stream does not start.

use super::BootError;
use crate::config::{Config, StreamLimits};
use crate::server::process;

/// Returns the limits that the process's open files and threads permit.
pub(super) fn limits(config: &Config) -> Result<StreamLimits, BootError> {
    let descriptors =
        process::descriptors().map_err(|error| BootError::new("the limit of open files", error))?;
    let (asked, threads) = (config.streams, process::threads_left());
    let limits = asked.within(descriptors, threads, config.cores);
    if !limits.leave_room() {
        let few_files = !asked.within(descriptors, usize::MAX, config.cores).leave_room();
        let (what, has, wanted, how) = if few_files {
            ("the limit of open files", descriptors, asked.descriptors(config.cores), "raise `ulimit -n`")
        } else {
            ("the limit of threads", threads, asked.threads(config.cores), "raise `ulimit -u` or `pids.max`")
        };
        let text = format!("{has} is too low for any stream; {wanted} are needed: {how}");
        return Err(BootError::new(what, text));
    }
    if limits != asked {
        let StreamLimits { places, of_tenant, reserve } = limits;
        tracing::warn!(
            descriptors,
            threads,
            streams = places,
            of_tenant,
            reserve,
            "fewer streams than {}: the limit of open files or threads is too low",
            asked.places
        );
    }
    Ok(limits)
}
