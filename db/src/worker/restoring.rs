//! Stores objects of an archive in a table of their tenant, a small batch in a turn.
//!
//! A control thread waits for the answer, the worker for nothing. What the store refuses stays with the control thread.

use store::{ReplayError, Replayed, entry_key};

use crate::ops::WorkerEnvironment;
use crate::tablet::Parts;
use crate::view::change::{ArchivedObjects, NotRestored, RestoredObjects};

/// Stores the objects, as far as the store admits them, and answers. Of a table that is gone none is done.
pub fn store(environment: &WorkerEnvironment<'_>, objects: &ArchivedObjects) {
    let mut restored = RestoredObjects::default();
    if let Some(entry) = environment.tables.get(objects.tenant, objects.table) {
        environment.core.ask_for_disk(false);
        let (mut rest, mut counts) = (&objects.entries[..], Replayed::default());
        restored.refused = match entry.parts.only() {
            Some(part) => environment.pin.restore(part, &mut rest, &mut counts).map_err(NotRestored::Store),
            None => store_by_parts(environment, &entry.parts, &mut rest, &mut counts),
        }
        .err();
        let cuts = environment.core.take_seen();
        // Others in this round may have seen it, too.
        environment.core.see(cuts);
        let done_bytes = objects.entries.len() - rest.len();
        restored = RestoredObjects { done_bytes, counts, cuts, ..restored };
    }
    // The control thread may have given up waiting.
    objects.answer.send(restored);
}

/// Stores the objects one by one, each in the part that has its key.
fn store_by_parts(
    environment: &WorkerEnvironment<'_>,
    parts: &Parts,
    rest: &mut &[u8],
    counts: &mut Replayed,
) -> Result<(), NotRestored> {
    while !rest.is_empty() {
        let (key, length) = entry_key(rest).ok_or(NotRestored::Store(ReplayError::Cut))?;
        let part = parts.find(key, store::hash(key)).ok_or(NotRestored::NotOwned)?;
        let (mut object, behind) = rest.split_at(length);
        environment.pin.restore(part, &mut object, counts).map_err(NotRestored::Store)?;
        *rest = behind;
    }
    Ok(())
}
