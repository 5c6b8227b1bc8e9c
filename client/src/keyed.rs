//! Values of objects by their keys.

/// A table's id and a key.
pub(crate) type KeyPlace = (u32, Vec<u8>);

/// A sorted list: a look-up copies no key, and finds one of few objects faster than a tree does. An insertion moves what is behind it,
/// of the few thousand objects at most that a commit has.
pub(crate) struct Keyed<V> {
    items: Vec<(KeyPlace, V)>,
}

impl<V> Default for Keyed<V> {
    fn default() -> Self {
        Self { items: Vec::new() }
    }
}

impl<V> Keyed<V> {
    /// Returns the place of a key in the list, or where it would be.
    pub(crate) fn find(&self, table: u32, key: &[u8]) -> Result<usize, usize> {
        self.items.binary_search_by(|((other, name), _)| (*other, &name[..]).cmp(&(table, key)))
    }

    pub(crate) fn get(&self, table: u32, key: &[u8]) -> Option<&V> {
        self.find(table, key).ok().map(|at| &self.items[at].1)
    }

    /// Sets the value of a key.
    pub(crate) fn set(&mut self, table: u32, key: &[u8], value: V) {
        match self.find(table, key) {
            Ok(at) => self.items[at].1 = value,
            Err(at) => self.items.insert(at, ((table, key.to_vec()), value)),
        }
    }

    /// Returns everything, in the order of tables and keys.
    pub(crate) fn items(&self) -> &[(KeyPlace, V)] {
        &self.items
    }

    /// Returns the keys, in order.
    pub(crate) fn places(&self) -> impl Iterator<Item = &KeyPlace> {
        self.items.iter().map(|(place, _)| place)
    }

    pub(crate) fn clear(&mut self) {
        self.items.clear();
    }
}
