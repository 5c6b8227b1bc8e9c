//! Changes of a table's parts.

use std::sync::Arc;

use store::{HashRange, Table};

use super::{Moving, Parts, PartsError};
use crate::tablet::ranges::{Range, subtract};

/// A change of held parts and owned hashes.
#[derive(Clone, Debug, Default)]
pub struct PartsChange {
    /// Hashes to be owned no longer, whether owned before or not.
    pub leave: Vec<Range>,
    /// Hashes to be owned, whether owned before or not; a held or new part contains them.
    pub take: Vec<Range>,
    /// Parts to be held, whether held before or not.
    pub come: Vec<Arc<Table>>,
    /// Parts to be held no longer, if they were.
    pub go: Vec<Arc<Table>>,
    /// New migrations whose reads may ask both servers. They end by being closed.
    pub moving: Vec<Arc<Moving>>,
}

impl PartsChange {
    /// Returns whether the change is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { leave, take, come, go, moving } = self;
        leave.is_empty() && take.is_empty() && come.is_empty() && go.is_empty() && moving.is_empty()
    }
}

impl Parts {
    /// Returns these parts after a change.
    ///
    /// # Errors
    /// See [`PartsError`].
    pub fn altered(&self, change: &PartsChange) -> Result<Self, PartsError> {
        let mut owned = subtract(&subtract(&self.owned(), &change.leave), &change.take);
        owned.extend(&change.take);
        let range = |&(first, last): &Range| HashRange::new(first, last).ok_or(PartsError::TooNarrow(first));
        let owned = owned.iter().map(range).collect::<Result<Vec<_>, _>>()?;
        let is_kept = |part: &&Arc<Table>| !change.go.iter().any(|gone| Arc::ptr_eq(gone, part));
        let is_new = |part: &&Arc<Table>| !self.held.iter().any(|held| Arc::ptr_eq(held, part));
        let come = change.come.iter().filter(is_new);
        let held = self.held.iter().filter(is_kept).chain(come).cloned().collect();
        let open = self.moving.iter().filter(|moving| moving.is_open()).chain(&change.moving);
        let moving = open.cloned().collect();
        Ok(Self { moving, ..Self::new(self.options, held, &owned)? })
    }
}
