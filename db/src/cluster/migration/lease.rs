//! What a side of a migration knows of the lease under which its server is registered.
//!
//! While it is over others may believe that the server is gone, and own what moves. Whoever declares a server gone does so
//! in a commit that finds it unregistered; so what the records say to a server that has been registered since before
//! it read them is still so, or will be changed by itself or with its knowledge.

/// What a side knows of the lease under which its server is registered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Lease {
    /// It was held when the records were read last, and is since.
    Held,
    /// It is over.
    Over,
    /// It is held again; the records have still to be read.
    Again,
}

impl Lease {
    /// It is held, or it is over.
    pub(super) fn turn(&mut self, is_held: bool) {
        *self = match (is_held, *self) {
            (false, _) => Lease::Over,
            (true, Lease::Over) => Lease::Again,
            (true, before) => before,
        };
    }

    /// The records have been read, under a lease or not.
    pub(super) fn looked_up(&mut self, is_registered: bool) {
        if is_registered && *self == Lease::Again {
            *self = Lease::Held;
        }
    }
}
