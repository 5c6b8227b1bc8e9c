//! Values of objects by their keys.

use std::collections::BTreeMap;

/// A table's id and a key.
pub(crate) type Place<'k> = (u32, &'k [u8]);

/// A tree for each table: a look-up copies no key.
pub(crate) struct Keyed<V> {
    tables: BTreeMap<u32, BTreeMap<Vec<u8>, V>>,
}

impl<V> Default for Keyed<V> {
    fn default() -> Self {
        Self { tables: BTreeMap::new() }
    }
}

impl<V> Keyed<V> {
    pub(crate) fn get(&self, table: u32, key: &[u8]) -> Option<&V> {
        self.tables.get(&table)?.get(key)
    }

    /// Sets the value of a key.
    pub(crate) fn set(&mut self, table: u32, key: &[u8], value: V) {
        self.tables.entry(table).or_default().insert(key.to_vec(), value);
    }

    /// Returns everything, in the order of tables and keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Place<'_>, &V)> {
        let tables = self.tables.iter();
        tables.flat_map(|(table, objects)| objects.iter().map(|(key, value)| ((*table, &key[..]), value)))
    }

    /// Returns the keys, in order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Place<'_>> {
        self.iter().map(|(place, _)| place)
    }

    /// Returns how many keys there are. Cost: one step for each table.
    pub(crate) fn len(&self) -> usize {
        self.tables.values().map(BTreeMap::len).sum()
    }

    pub(crate) fn clear(&mut self) {
        self.tables.clear();
    }
}
