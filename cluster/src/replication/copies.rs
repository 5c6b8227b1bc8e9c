//! Copies of what lacks replicas: one at a time, of what is there to a backup that has none of it.

use super::{BackupId, Item, Link, Replica, Replicas, Replication};

impl Replication {
    /// Returns an item that lacks a replica, and who is to get it. One at a time, until [`Replication::copied`]. A digest that no
    /// backup has comes last: whoever finds it has to find what it names.
    pub fn to_copy(&mut self) -> Option<(BackupId, Item)> {
        if self.copying.is_some() || !self.may_copy {
            return None;
        }
        let lacks = |(item, replicas): &(&Item, &Replicas)| {
            replicas.all.len() < self.wanted && !self.unreadable.contains(item)
        };
        let mut lacking: Vec<Item> = self.items.iter().filter(lacks).map(|(item, _)| *item).collect();
        let is_new = self.items.get(&Item::Digest).is_some_and(|digest| digest.all.is_empty());
        let is_first = is_new && lacking.first() == Some(&Item::Digest);
        lacking.rotate_left(usize::from(is_first));
        let acked =
            |replicas: &Replicas| replicas.all.iter().filter(|replica| self.is_there(replica)).count();
        let promised = self.record.replicas.saturating_sub(self.lost.len());
        let waits_for = |item: &Item| *item != Item::Digest && !self.unreadable.contains(item);
        let mut segments = self.items.iter().filter(|(item, _)| waits_for(item));
        let digest_waits = is_new && segments.any(|(_, replicas)| acked(replicas) < promised);
        for item in lacking {
            if item == Item::Digest && digest_waits {
                break;
            }
            if let Some(id) = self.choose(item) {
                self.hold(item, Replica { at: id, since: None });
                self.copying = Some((id, item));
                return self.copying;
            }
        }
        self.may_copy = false;
        None
    }

    /// Notes that the end of the copy is sent, up to the latest byte that was written of the item; returns its ticket. `None`
    /// if the backup was lost meanwhile, or the item freed.
    pub fn copied(&mut self) -> Option<u64> {
        let (id, item) = self.copying.take()?;
        let link = self.links.get_mut(&id)?;
        let replica = self.items.get_mut(&item)?.all.iter_mut().find(|replica| replica.at == id)?;
        let ticket = link.ticket();
        link.copied.push_back((ticket, item));
        replica.since = Some(ticket);
        Some(ticket)
    }

    /// Returns a ticket for what was sent of the copy under way; `None` as for [`Replication::copied`].
    pub fn piece_sent(&mut self) -> Option<u64> {
        let (id, _) = self.copying?;
        self.links.get_mut(&id).map(Link::ticket)
    }

    /// Returns whether a backup has acknowledged this ticket.
    #[must_use]
    pub fn has_acked(&self, id: BackupId, ticket: u64) -> bool {
        self.links.get(&id).is_some_and(|link| link.acked >= ticket)
    }

    /// Gives up the copy under way for good: what is to be copied cannot be read.
    pub fn cannot_copy(&mut self) {
        let Some((id, item)) = self.copying.take() else { return };
        self.unreadable.insert(item);
        if let (Some(link), Some(replicas)) = (self.links.get_mut(&id), self.items.get_mut(&item)) {
            link.held -= 1;
            replicas.all.retain(|replica| replica.at != id);
        }
    }
}
