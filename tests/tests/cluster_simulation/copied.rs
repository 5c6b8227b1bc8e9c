//! Copying hashes that are served: what source and target of such a migration do on the real stores.

use std::sync::Arc;

use cluster::migration::{Copied, Gathered, PullCursor, PullSpan};
use db::tablet::{Copier, Spot};
use store::{HashRange, Replayed, Table};

use crate::node::Node;

/// Bytes and spans of a piece here: few, so that many are on their way.
const PIECE: (usize, usize) = (400, 3);

/// Marks from when on all workers have passed a change.
pub fn watch(node: &Node, range: HashRange) -> Copier {
    Copier::new(node.parts.pieces((range.first(), range.last())))
}

/// The next piece of a round.
pub fn gather(node: &Node, copier: &mut Copier, round: u32) -> Gathered {
    let copy = copier.next(&node.mover, round, PIECE);
    let place = |(hash, second): Spot| PullCursor { hash, second };
    let span = |&(first, last): &(Spot, Spot)| PullSpan { first: place(first), last: place(last) };
    Gathered {
        spans: copy.spans.iter().map(span).collect(),
        objects: copy.objects,
        left_bytes: copy.is_end.then(|| copier.left_bytes() << 12),
    }
}

/// Makes spans of a part what a piece has of them.
pub fn store(node: &Node, part: &Arc<Table>, range: HashRange, piece: &Copied) {
    let pin = node.mover.pin();
    let spot = |place: PullCursor| (place.hash, place.second);
    for span in piece.spans.iter().filter(|_| piece.is_again) {
        let span = (spot(span.first), spot(span.last));
        pin.remove_absent(part, span, &piece.objects).expect("it is there");
    }
    drop(pin);
    // Again it is as before: what is there is not stored twice.
    node.store_objects(|pin| pin.copy(part, range, &mut &piece.objects[..], &mut Replayed::default()));
}
