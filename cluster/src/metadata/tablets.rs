//! Records of tablets: which server owns which hashes of a table. One record per table lists its tablets by their last
//! hashes, so that every hash has exactly one owner.
//!
//! A tablet begins at a multiple of [`HASH_RANGE_WIDTH_MIN`], so that every range between two boundaries is wide enough
//! for a table of the store. Tablets with moving hashes ([`super::migrations`]) are not changed. A server that is alone
//! has no such records and owns everything.
//!
//! The tablets of a tagged table are ranges of [`wire::position`]s, which stand for the hashes here. Each has a
//! part of its own on its server, whose index is by the hashes of the keys: so it stays as it was created, and moves as
//! a whole.

use serde::{Deserialize, Serialize};
use store::{HASH_RANGE_WIDTH_MIN, HashRange};
use wire::limits::TABLETS_PER_TABLE_MAX;
use wire::{TAG_WIDTH, TenantId};

use super::encoding::padded;
use super::row::{Row, below, number, tenant};
use super::{MetadataError, MetadataTransaction, TabletError};
use crate::records::RecordsError;

/// Hashes of a table with one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tablet {
    /// The hashes.
    pub hashes: HashRange,
    /// The number of the server that owns them.
    pub server: u32,
    /// The time when their objects were lost, in milliseconds since the Unix epoch.
    pub emptied_ms: Option<u64>,
}

/// The tablets of a table, in the order of their hashes, covering all hashes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct TabletsRow {
    /// The tenant of the table.
    pub tenant: TenantId,
    /// The table's number.
    pub table: u32,
    /// The tablets.
    pub tablets: Vec<Tablet>,
    /// Whether the table is tagged.
    pub is_tagged: bool,
}

/// A row as stored, under one of two names: a release without tagged tables would store it again as that of another one, so
/// it must not understand it.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Stored {
    #[serde(skip_serializing_if = "Option::is_none")]
    tablets: Option<TabletList>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tagged_tablets: Option<TabletList>,
}

#[derive(Serialize, Deserialize)]
struct TabletList(#[serde(with = "list")] Vec<Tablet>);

impl From<TabletsRow> for Stored {
    fn from(TabletsRow { tablets, is_tagged, .. }: TabletsRow) -> Self {
        let list = Some(TabletList(tablets));
        if is_tagged {
            Self { tagged_tablets: list, tablets: None }
        } else {
            Self { tablets: list, tagged_tablets: None }
        }
    }
}

impl TryFrom<Stored> for TabletsRow {
    type Error = &'static str;

    fn try_from(stored: Stored) -> Result<Self, Self::Error> {
        let (TabletList(tablets), is_tagged) = match stored {
            Stored { tablets: Some(list), tagged_tablets: None } => (list, false),
            Stored { tablets: None, tagged_tablets: Some(list) } => (list, true),
            _ => return Err("the tablets of a table are listed once"),
        };
        Ok(Self { tenant: TenantId::default(), table: 0, tablets, is_tagged })
    }
}

impl TabletsRow {
    /// Spreads the hashes of a table, tagged or not, evenly over these servers, with one tablet for each entry.
    ///
    /// # Errors
    /// `LimitExceeded` for none or too many.
    pub fn spread(
        tenant: TenantId,
        (table, is_tagged): (u32, bool),
        servers: &[u32],
    ) -> Result<Self, MetadataError> {
        if servers.len() > TABLETS_PER_TABLE_MAX {
            return Err(MetadataError::LimitExceeded);
        }
        let step = if is_tagged { TAG_WIDTH } else { HASH_RANGE_WIDTH_MIN };
        let edge = |index: usize| (u64::MAX / step + 1) * index as u64 / servers.len() as u64 * step;
        let (&first, others) = servers.split_first().ok_or(MetadataError::LimitExceeded)?;
        let whole = Tablet { hashes: HashRange::ALL, server: first, emptied_ms: None };
        let mut row = Self { tenant, table, tablets: vec![whole], is_tagged: false };
        for (index, &server) in (1..).zip(others) {
            row.split(edge(index))?;
            row.tablets[index].server = server;
        }
        row.is_tagged = is_tagged;
        Ok(row)
    }

    /// Returns the tablets that contain some of these hashes.
    pub fn touching(&self, hashes: HashRange) -> impl Iterator<Item = &Tablet> {
        self.tablets.iter().filter(move |tablet| overlap(tablet.hashes, hashes))
    }

    /// Returns the ranges that a server owns; adjacent tablets of one server are merged, unless each has its own part.
    #[must_use]
    pub fn owned_by(&self, server: u32) -> Vec<HashRange> {
        let mut ranges: Vec<HashRange> = Vec::new();
        for tablet in self.tablets.iter().filter(|tablet| tablet.server == server) {
            let (mut first, last) = (tablet.hashes.first(), tablet.hashes.last());
            let is_adjacent =
                |before: &mut HashRange| !self.is_tagged && before.last().checked_add(1) == Some(first);
            if let Some(before) = ranges.pop_if(is_adjacent) {
                first = before.first();
            }
            // At least as wide as its tablets.
            ranges.extend(HashRange::new(first, last));
        }
        ranges
    }

    /// Makes the hash the first one of a tablet.
    pub(super) fn split(&mut self, at: u64) -> Result<(), MetadataError> {
        let index = self.tablets.partition_point(|tablet| tablet.hashes.last() < at);
        let tablet = self.tablets[index];
        let hashes = tablet.hashes;
        if hashes.first() == at {
            return Ok(());
        }
        if self.is_tagged {
            return Err(TabletError::Tagged.into());
        }
        if !at.is_multiple_of(HASH_RANGE_WIDTH_MIN) {
            return Err(TabletError::Uneven(at).into());
        }
        if self.tablets.len() >= TABLETS_PER_TABLE_MAX {
            return Err(MetadataError::LimitExceeded);
        }
        let low = HashRange::new(hashes.first(), at - 1).ok_or(TabletError::Uneven(at))?;
        let high = HashRange::new(at, hashes.last()).ok_or(TabletError::Uneven(at))?;
        self.tablets[index].hashes = low;
        self.tablets.insert(index + 1, Tablet { hashes: high, ..tablet });
        debug_assert!(self.is_whole(), "a split leaves every hash with one owner");
        Ok(())
    }

    /// Returns whether every hash has exactly one tablet.
    fn is_whole(&self) -> bool {
        let ends = self.tablets.first().zip(self.tablets.last());
        ends.is_some_and(|(first, last)| first.hashes.first() == 0 && last.hashes.last() == u64::MAX)
            && self
                .tablets
                .is_sorted_by(|low, high| low.hashes.last().checked_add(1) == Some(high.hashes.first()))
    }

    /// Merges the tablets on both sides of a boundary.
    pub(super) fn merge(&mut self, at: u64) -> Result<(), TabletError> {
        let index = self.tablets.iter().position(|tablet| tablet.hashes.first() == at);
        let index = index.filter(|&index| index > 0).ok_or(TabletError::NoEdge(at))?;
        if self.is_tagged {
            return Err(TabletError::Tagged);
        }
        let (low, high) = (self.tablets[index - 1], self.tablets[index]);
        if low.server != high.server {
            return Err(TabletError::SeveralOwners);
        }
        let joined = HashRange::new(low.hashes.first(), high.hashes.last()).ok_or(TabletError::Uneven(at))?;
        let emptied_ms = low.emptied_ms.max(high.emptied_ms);
        self.tablets[index - 1] = Tablet { hashes: joined, emptied_ms, ..low };
        self.tablets.remove(index);
        debug_assert!(self.is_whole(), "a merge leaves every hash with one owner");
        Ok(())
    }

    /// Gives all these hashes, which begin and end with tablets, to a server.
    pub(super) fn give(&mut self, hashes: HashRange, server: u32) {
        for tablet in self.tablets.iter_mut().filter(|tablet| overlap(tablet.hashes, hashes)) {
            debug_assert!(
                hashes.contains(tablet.hashes.first()) && hashes.contains(tablet.hashes.last()),
                "only whole tablets change their owner"
            );
            tablet.server = server;
        }
    }

    /// Returns the owner of all these hashes.
    pub(super) fn owner_of(&self, hashes: HashRange) -> Result<u32, TabletError> {
        let mut owners = self.touching(hashes).map(|tablet| tablet.server);
        let owner = owners.next().ok_or(TabletError::SeveralOwners)?;
        if owners.all(|other| other == owner) { Ok(owner) } else { Err(TabletError::SeveralOwners) }
    }
}

/// The tablets of a row: of each the last hash in hexadecimal, the owner, and the time when it lost its objects, or 0.
mod list {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use store::HashRange;
    use wire::limits::TABLETS_PER_TABLE_MAX;

    use super::{Tablet, hash_of, hash_text};

    pub(super) fn serialize<S: Serializer>(tablets: &[Tablet], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(tablets.iter().map(|tablet| {
            (hash_text(tablet.hashes.last()), tablet.server, tablet.emptied_ms.unwrap_or_default())
        }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Tablet>, D::Error> {
        let mut next = Some(0);
        let mut tablets = Vec::new();
        for (last, server, emptied_ms) in Vec::<(String, u32, u64)>::deserialize(deserializer)? {
            let range = next.zip(hash_of(&last)).and_then(|(first, last)| HashRange::new(first, last));
            let hashes = range.ok_or_else(|| Error::custom("the hashes of a tablet are not a range"))?;
            tablets.push(Tablet { hashes, server, emptied_ms: (emptied_ms != 0).then_some(emptied_ms) });
            next = hashes.last().checked_add(1);
        }
        if next.is_some() || tablets.len() > TABLETS_PER_TABLE_MAX {
            return Err(Error::custom("the tablets do not cover the hashes"));
        }
        Ok(tablets)
    }
}

impl Row for TabletsRow {
    const PREFIX: &'static str = "catalog/tablets/";

    fn key(&self) -> String {
        key_of(self.tenant, self.table)
    }

    fn with_key(self, parts: &[&str]) -> Option<Self> {
        let &[of, table] = parts else { return None };
        Some(Self { tenant: tenant(of)?, table: number(table)?, ..self })
    }
}

/// Encodes a hash for records.
pub(super) fn hash_text(hash: u64) -> String {
    format!("{hash:016x}")
}

pub(super) fn hash_of(text: &str) -> Option<u64> {
    (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok())?
}

pub(super) fn overlap(one: HashRange, other: HashRange) -> bool {
    one.first() <= other.last() && other.first() <= one.last()
}

/// Returns the key of the record.
pub(super) fn record_of(tenant: TenantId, table: u32) -> String {
    format!("{}{}", TabletsRow::PREFIX, key_of(tenant, table))
}

fn key_of(tenant: TenantId, table: u32) -> String {
    below(tenant) + &padded(table)
}

pub(super) fn remove_table(transaction: &mut MetadataTransaction<'_>, tenant: TenantId, table: u32) {
    transaction.remove_row::<TabletsRow>(&key_of(tenant, table));
}

pub(super) fn find(
    transaction: &mut MetadataTransaction<'_>,
    tenant: TenantId,
    table: u32,
) -> Result<Option<TabletsRow>, RecordsError> {
    transaction.row(&key_of(tenant, table))
}
