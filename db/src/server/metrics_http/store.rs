//! Metrics of memory: the store's segments, objects and indexes.

use std::io;

use super::text::{Kind, MetricsText};
use crate::server::control::Control;

pub(super) fn write<W: FnMut(&[u8]) -> io::Result<()>>(
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
