//! Progress of migrations as text and JSON, counted by the asked server for those that it takes part in.

use client::{MigrationEntry, MigrationProgress, MigrationWait};
use serde_json::{Value, json};

use super::super::output::table_of;

/// Returns the asked server's progress of a running migration.
pub fn of<'a>(entry: &MigrationEntry, all: &'a [MigrationProgress]) -> Option<&'a MigrationProgress> {
    all.iter().find(|progress| !progress.is_over && progress.migration.id == entry.id)
}

/// Describes what a migration waits for, or how much has moved and how fast.
pub fn text(progress: &MigrationProgress) -> String {
    let MigrationEntry { source, target, .. } = progress.migration;
    let (own, other) = if progress.is_source { (source, target) } else { (target, source) };
    match progress.awaited {
        MigrationWait::Slot => {
            return format!("waits for a slot on server {own}, {} ahead of it", progress.ahead);
        }
        MigrationWait::Peer if progress.bytes == 0 => return format!("waits for server {other}"),
        MigrationWait::Records if progress.bytes == 0 => return "waits for the metadata".to_owned(),
        MigrationWait::Disk => return format!("waits for the disk of server {target}"),
        _ => {}
    }
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let (bytes, rate) = (megabytes(progress.bytes), megabytes(progress.bytes_per_second));
    let of_log = match (progress.log_bytes, progress.log_bytes_expected) {
        (Some(read), Some(expected)) if !progress.is_over => {
            let left_s = progress.left_ms().map(|ms| format!(", some {} s left", ms.div_ceil(1_000)));
            let (read, expected) = (megabytes(read), megabytes(expected));
            format!("{read:.0} of {expected:.0} MB of the log{}; ", left_s.unwrap_or_default())
        }
        _ => String::new(),
    };
    let of_all = match progress.objects_expected {
        expected if progress.is_source || expected == 0 => String::new(),
        expected => format!("{} of about {expected} objects, ", progress.objects),
    };
    format!("{of_log}{of_all}{bytes:.1} MB in {:.1} s, {rate:.1} MB/s", progress.took_ms as f64 / 1e3)
}

/// Formats the latest completed migrations; empty if there are none.
pub fn lately(all: &[MigrationProgress]) -> String {
    let heads = ["migration", "table", "from", "to", "mode", "ended", "moved", "unserved ms"];
    let mut rows = Vec::new();
    for progress in all.iter().filter(|progress| progress.is_over) {
        let entry = &progress.migration;
        let pause = if progress.is_source { String::new() } else { (progress.pause_us / 1000).to_string() };
        rows.push(vec![
            entry.id.to_string(),
            entry.table.clone(),
            entry.source.to_string(),
            entry.target.to_string(),
            entry.mode.name().to_owned(),
            entry.phase.name().to_owned(),
            text(progress),
            pause,
        ]);
    }
    if rows.is_empty() { String::new() } else { table_of(&heads, rows) }
}

/// Returns the JSON form.
pub fn value_of(progress: &MigrationProgress) -> Value {
    json!({
        "migration": progress.migration.id, "table": progress.migration.table,
        "mode": progress.migration.mode.name(), "phase": progress.migration.phase.name(),
        "counted_by": if progress.is_source { "source" } else { "target" }, "over": progress.is_over,
        "waits_for": progress.awaited.name(), "ahead": progress.ahead,
        "objects_expected": progress.objects_expected, "log_bytes": progress.log_bytes,
        "log_bytes_expected": progress.log_bytes_expected,
        "left_ms": progress.left_ms(),
        "objects": (!progress.is_source).then_some(progress.objects), "bytes": progress.bytes,
        "bytes_per_second": progress.bytes_per_second, "second_read_bytes": progress.second_read_bytes,
        "pause_us": (!progress.is_source).then_some(progress.pause_us), "took_ms": progress.took_ms,
    })
}

#[cfg(test)]
mod tests {
    use client::{MigrationEntry, MigrationMode, MigrationPhase, MigrationProgress, MigrationWait};

    use super::{lately, of, text};

    #[test]
    fn it_is_told_how_much_has_moved_and_how_fast_and_what_is_over() {
        let migration = MigrationEntry {
            id: 7,
            table: "ann/t".into(),
            first: 0,
            last: u64::MAX,
            source: 1,
            target: 2,
            mode: MigrationMode::Rocksteady,
            phase: MigrationPhase::Moving,
            is_aborted: false,
            begun_ms: 5,
        };
        let under_way = MigrationProgress {
            migration: migration.clone(),
            is_source: false,
            is_over: false,
            awaited: MigrationWait::Nothing,
            ahead: 0,
            objects_expected: 400,
            log_bytes: None,
            log_bytes_expected: None,
            objects: 100,
            bytes: 2_500_000,
            bytes_per_second: 5_000_000,
            second_read_bytes: 0,
            pause_us: 3_000,
            took_ms: 500,
        };
        assert_eq!(text(&under_way), "100 of about 400 objects, 2.5 MB in 0.5 s, 5.0 MB/s");
        let source = MigrationProgress { is_source: true, ..under_way.clone() };
        assert_eq!(text(&source), "2.5 MB in 0.5 s, 5.0 MB/s");
        let waits = |awaited, is_source| {
            text(&MigrationProgress { awaited, is_source, ahead: 3, bytes: 0, ..under_way.clone() })
        };
        assert_eq!(waits(MigrationWait::Slot, false), "waits for a slot on server 2, 3 ahead of it");
        assert_eq!(waits(MigrationWait::Slot, true), "waits for a slot on server 1, 3 ahead of it");
        assert_eq!(waits(MigrationWait::Peer, true), "waits for server 2");
        assert_eq!(waits(MigrationWait::Records, true), "waits for the metadata");
        assert_eq!(waits(MigrationWait::Disk, false), "waits for the disk of server 2");
        let (log_bytes, log_bytes_expected) = (Some(4_000_000), Some(14_000_000));
        let recovery = MigrationProgress { log_bytes, log_bytes_expected, ..source.clone() };
        assert_eq!(text(&recovery), "4 of 14 MB of the log, some 2 s left; 2.5 MB in 0.5 s, 5.0 MB/s");
        let begun = MigrationProgress { log_bytes: Some(0), ..recovery.clone() };
        assert!(text(&begun).starts_with("0 of 14 MB of the log; "));
        assert_eq!(text(&MigrationProgress { is_over: true, ..recovery }), text(&source));
        let over = MigrationProgress { is_over: true, ..under_way.clone() };
        assert_eq!(of(&migration, &[over.clone(), under_way.clone()]), Some(&under_way));
        assert_eq!(lately(&[under_way]), "");
        assert!(lately(&[over]).contains("100 of about 400 objects"));
    }
}
