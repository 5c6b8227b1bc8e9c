//! What a side of a migration knows of the lease under which its server is registered.
//!
//! While it is over others may believe that the server is gone, and own what moves. Whoever declares a server gone does so
//! in a commit that finds it unregistered; so what the records say to a server that has been registered since before
//! it read them is still so, or will be changed by itself or with its knowledge.

use crate::cluster::records::LeaseId;

/// The lease under which a side takes its server for registered, as its machine was told last.
#[derive(Clone, Copy, Debug)]
pub struct Tenure {
    is_registered: bool,
    lease: Option<LeaseId>,
}

impl Tenure {
    /// That of a side that begins, whose machine takes the server for registered.
    #[must_use]
    pub fn begin(lease: Option<LeaseId>) -> Self {
        Self { is_registered: true, lease }
    }

    /// The lease that is held now, or none. Whether the machine is to be told that the server is registered, or is not; nothing
    /// where that is as it was. Another lease is told as the end of the one before: in between the server was not registered.
    pub fn turn(&mut self, lease: Option<LeaseId>) -> Option<bool> {
        let is_same = lease == self.lease;
        let is_registered = lease.is_some() && (is_same || !self.is_registered);
        let was_registered = self.is_registered;
        *self = Self { is_registered, lease: lease.filter(|_| is_registered) };
        (is_registered != was_registered).then_some(is_registered)
    }

    /// The lease, while the machine takes the server for registered.
    #[must_use]
    pub fn lease(&self) -> Option<LeaseId> {
        self.lease
    }
}

/// What a side knows of the lease under which its server is registered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LeaseView {
    /// It was held when the records were read last, and is since.
    Held,
    /// It is over.
    Over,
    /// It is held again; the records have still to be read.
    Again,
}

impl LeaseView {
    /// It is held, or it is over.
    pub(super) fn turn(&mut self, is_held: bool) {
        *self = match (is_held, *self) {
            (false, _) => LeaseView::Over,
            (true, LeaseView::Over) => LeaseView::Again,
            (true, before) => before,
        };
    }

    /// The records have been read, under a lease or not.
    pub(super) fn looked_up(&mut self, is_registered: bool) {
        if is_registered && *self == LeaseView::Again {
            *self = LeaseView::Held;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Tenure;
    use crate::cluster::records::LeaseId;

    #[test]
    fn another_lease_is_told_as_the_end_of_the_one_before() {
        let [one, other] = [1, 2].map(|number| Some(LeaseId(number)));
        let mut tenure = Tenure::begin(one);
        assert_eq!([one, one].map(|lease| tenure.turn(lease)), [None, None]);
        assert_eq!([other, other, other].map(|lease| tenure.turn(lease)), [Some(false), Some(true), None]);
        assert_eq!(tenure.lease(), other);
        assert_eq!([None, None, one].map(|lease| tenure.turn(lease)), [Some(false), None, Some(true)]);
    }

    #[test]
    fn a_side_that_begins_without_a_lease_is_told_so() {
        let mut tenure = Tenure::begin(None);
        assert_eq!([None, None].map(|lease| tenure.turn(lease)), [Some(false), None]);
        assert_eq!((tenure.turn(Some(LeaseId(1))), tenure.lease()), (Some(true), Some(LeaseId(1))));
    }
}
