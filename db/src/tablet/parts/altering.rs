//! Parts of a table after something of them came or went.

use std::sync::Arc;

use store::{HashRange, Table};

use super::{Moving, Parts, PartsError};
use crate::tablet::ranges::{Range, subtract};

/// What comes and goes.
#[derive(Clone, Debug, Default)]
pub struct PartsChange {
    /// Hashes that are not owned any more, owned before or not.
    pub leave: Vec<Range>,
    /// Hashes that are owned from now on, owned before or not; a part has them, maybe one that comes.
    pub take: Vec<Range>,
    /// Parts that are held from now on, held before or not.
    pub come: Vec<Arc<Table>>,
    /// Parts that are not held any more, if they were.
    pub go: Vec<Arc<Table>>,
    /// What is on the move from now on in such a way that reads may ask both servers. It ends by being closed.
    pub moving: Vec<Arc<Moving>>,
}

impl PartsChange {
    /// Whether nothing comes or goes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { leave, take, come, go, moving } = self;
        leave.is_empty() && take.is_empty() && come.is_empty() && go.is_empty() && moving.is_empty()
    }
}

impl Parts {
    /// These parts after a change.
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
