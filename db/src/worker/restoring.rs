//! Stores objects of an archive in a table of their tenant, a small batch in a turn.
//!
//! A control thread waits for the answer, the worker for nothing. What the store refuses stays with the control thread.

use store::Replayed;

use crate::ops::WorkerEnvironment;
use crate::view::change::{ArchivedObjects, RestoredObjects};

/// Stores the objects, as far as the store admits them, and answers. Of a table that is gone none is done.
pub fn store(environment: &WorkerEnvironment<'_>, objects: &ArchivedObjects) {
    let mut restored = RestoredObjects::default();
    let entry = environment.tables.get(objects.tenant, objects.table);
    if let Some(part) = entry.and_then(|entry| entry.parts.only()) {
        environment.core.ask_for_disk(false);
        let (mut rest, mut counts) = (&objects.entries[..], Replayed::default());
        restored.refused = environment.pin.restore(part, &mut rest, &mut counts).err();
        let cut = environment.core.take_seen_cut();
        // Others in this round may have seen it, too.
        environment.core.see_cut(cut);
        let done_bytes = objects.entries.len() - rest.len();
        restored = RestoredObjects { done_bytes, counts, cut, ..restored };
    }
    // The control thread may have given up waiting.
    objects.answer.send(restored);
}
