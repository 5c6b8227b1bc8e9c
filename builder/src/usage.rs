//! The processor time of a running sandbox: of the started program and all its descendants.
//!
//! A sandbox does not report its programs' usage (its first process ends before it has waited for them), so `/proc` is
//! read while they live. The usage after the last reading is missed: a few milliseconds of each run.

use std::fs;

/// The length of a tick in `/proc`, the same on all of Linux.
const TICK_MS: u64 = 10;
/// The maximum number of processes read: more than a sandbox may have.
const PROCESSES_MAX: usize = 256;
/// The position of user time after the name of the program; the next three are system time, and both times of the
/// children that were waited for.
const TIME_FIELD: usize = 11;

/// Returns the processor time of a process and all its descendants so far, in milliseconds; 0 when it is gone.
pub(crate) fn processor_ms(root: u32) -> u64 {
    let mut ticks = 0;
    let mut waiting = vec![root];
    for _ in 0..PROCESSES_MAX {
        let Some(process) = waiting.pop() else { break };
        // A process that has ended meanwhile was counted in its parent, or is missed.
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        ticks += ticks_of(&stat);
        let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
        waiting.extend(
            children.unwrap_or_default().split(' ').filter_map(|child| child.trim().parse::<u32>().ok()),
        );
    }
    ticks * TICK_MS
}

fn ticks_of(stat: &str) -> u64 {
    // The name may hold spaces and brackets.
    let Some((_, fields)) = stat.rsplit_once(") ") else { return 0 };
    fields.split(' ').skip(TIME_FIELD).take(4).filter_map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::{processor_ms, ticks_of};

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 10 20 300 4000 20 0 1 0 5";
        assert_eq!(ticks_of(stat), 4330);
        assert_eq!(ticks_of(""), 0);
    }

    #[test]
    fn a_process_that_works_has_used_time_and_one_that_is_not_has_not() {
        let begun = std::time::Instant::now();
        while processor_ms(std::process::id()) < 20 && begun.elapsed().as_secs() < 30 {}
        assert!(processor_ms(std::process::id()) >= 20);
        assert_eq!(processor_ms(u32::MAX), 0);
    }
}
