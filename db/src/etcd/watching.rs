//! Watching in etcd: every event once and in order, over any number of connections.
//!
//! A watch remembers the last commit that it has sent, and requests its successors whenever the stream breaks. Etcd
//! sends a commit in one piece. If the requested history was compacted, there may be a gap, which the watch reports.
//! Etcd's progress notifications without events are not used: before 3.4.25 they may be ahead of the events.

use std::time::Duration;

use etcd_client::{EventType, WatchOptions, WatchResponse};
use tokio::time::sleep;

use super::EtcdShared;
use crate::limits::ETCD_LOOK_MS;
use cluster::records::{Event, Revision, WatchSource};

/// Whether a watch continues.
enum Next {
    On,
    Anew,
    Ended,
}

/// Sends the commits below a prefix after `after`, until the receiver is gone or there is a gap.
pub(super) async fn follow(shared: &EtcdShared, prefix: &str, after: Revision, source: &WatchSource) {
    let mut after = after;
    loop {
        let options = WatchOptions::new().with_prefix().with_start_revision(after.0 as i64 + 1);
        let mut client = shared.members.watches();
        if let Ok(mut stream) = shared.members.answer(client.watch(prefix, Some(options))).await {
            while let Ok(Some(response)) = stream.message().await {
                match show(shared, &response, &mut after, source) {
                    Next::On => {}
                    Next::Anew => break,
                    Next::Ended => return,
                }
            }
        }
        sleep(Duration::from_millis(ETCD_LOOK_MS)).await;
    }
}

fn show(shared: &EtcdShared, response: &WatchResponse, after: &mut Revision, source: &WatchSource) -> Next {
    if response.compact_revision() > 0 {
        source.lose();
        return Next::Ended;
    }
    if response.canceled() {
        return Next::Anew;
    }
    for commit in response.events().chunk_by(|one, other| revision_of(one) == revision_of(other)) {
        let revision = commit.first().map(revision_of).unwrap_or_default();
        let changes = commit.iter().filter_map(|event| {
            let kv = event.kv()?;
            let key = std::str::from_utf8(kv.key()).ok()?.strip_prefix(&shared.root)?.to_owned();
            let value = (event.event_type() == EventType::Put).then(|| kv.value().to_vec());
            Some((key, value))
        });
        if !source.show(Event { revision, changes: changes.collect() }) {
            return Next::Ended;
        }
        *after = revision;
    }
    Next::On
}

fn revision_of(event: &etcd_client::Event) -> Revision {
    Revision(event.kv().map_or(0, |kv| kv.mod_revision() as u64))
}
