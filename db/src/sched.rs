//! Scheduling between workers: the load of each, and a queue through which a loaded one offers work to others.

pub mod load;
pub mod offers;
