//! Figures of the store: contents, utilization, and the cost of cleaning.
//!
//! Shares are in percent. Reading them visits each segment and table, and the kernel walks the pages of the process:
//! some milliseconds for a large store, on a control thread.

use control::Statistic;

use super::statistic;
use crate::control_plane::Control;

/// File with the kernel's figures of this process's memory.
const PAGES: &str = "/proc/self/smaps_rollup";

pub(super) fn of(control: &Control) -> Vec<Statistic> {
    let store = control.store.statistics();
    let cleaner = store.cleaner;
    let taken = store.object_bytes + store.index_bytes;
    let mut statistics = vec![
        statistic("store_memory_bytes", store.memory_bytes),
        statistic("store_utilization_percent", percent(taken, store.memory_bytes)),
        statistic("store_objects", store.objects),
        statistic("store_object_bytes", store.object_bytes),
        statistic("store_objects_expired", store.objects_expired),
        statistic("store_objects_evicted", store.objects_evicted),
        statistic("store_tables", store.tables),
        statistic("store_index_bytes", store.index_bytes),
        statistic("store_index_slots", store.index_slots),
        statistic("store_index_load_percent", percent(store.objects, store.index_slots)),
        statistic("store_segment_bytes", store.segment_bytes),
        statistic("store_seglet_bytes", cleaner.seglet_bytes),
        statistic("store_segments", store.segments),
        statistic("store_segments_free", store.segments_free),
        statistic("store_segments_pending_reclamation", store.segments_pending_reclamation),
        statistic("store_segments_cleaned", store.segments_cleaned),
        statistic("store_free_bytes", cleaner.free_bytes),
        statistic("store_kept_bytes", cleaner.kept_bytes),
        statistic("store_pending_reclamation_bytes", cleaner.pending_reclamation_bytes),
        statistic("store_dead_bytes", cleaner.dead_bytes),
        statistic("store_written_bytes", cleaner.written_bytes),
        statistic("store_bytes_relocated", store.bytes_relocated),
        statistic("store_examined_bytes", cleaner.examined_bytes),
        statistic("store_emptied_bytes", cleaner.emptied_bytes),
        statistic("store_write_amplification_percent", cleaner.write_amplification_percent()),
        statistic("store_copied_per_freed_percent", cleaner.copied_per_freed_percent()),
        statistic("store_compactions", cleaner.compactions),
        statistic("store_combinations", cleaner.combinations),
        statistic("store_evacuations", cleaner.evacuations),
        statistic("store_refusals", cleaner.refusals),
        statistic("store_damaged_objects", cleaner.damaged_objects),
        statistic("store_damaged_segments", cleaner.damaged_segments),
        statistic("store_oldest_pin_age", store.oldest_pin_age),
    ];
    // The file cannot be read everywhere; then the figures are omitted rather than shown as 0.
    if let Ok(pages) = std::fs::read_to_string(PAGES) {
        let of_process = [("Rss:", "store_resident_bytes"), ("AnonHugePages:", "store_huge_page_bytes")];
        statistics.extend(of_process.into_iter().filter_map(|(field, name)| {
            kilobytes(&pages, field).map(|kilobytes| statistic(name, kilobytes * 1024))
        }));
    }
    statistics
}

fn percent(part: u64, whole: u64) -> u64 {
    (u128::from(part) * 100 / u128::from(whole.max(1))) as u64
}

/// Returns the number of kilobytes after the name of a field.
fn kilobytes(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{kilobytes, percent};

    #[test]
    fn fields_are_read_by_name() {
        let text = "00400000-7ffd rw-p\nRss:             1234 kB\nAnonHugePages:    2048 kB\n";
        assert_eq!((kilobytes(text, "Rss:"), kilobytes(text, "AnonHugePages:")), (Some(1234), Some(2048)));
        assert_eq!((kilobytes(text, "Pss:"), kilobytes("Rss: many kB", "Rss:")), (None, None));
    }

    #[test]
    fn shares_do_not_overflow() {
        assert_eq!((percent(1, 4), percent(0, 0), percent(u64::MAX, u64::MAX)), (25, 0, 100));
    }
}
