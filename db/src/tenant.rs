//! Tenants: their identity, their secrets, their limits, what they did.
//!
//! A tenant is known to the data path by its number alone; name and secret matter only when a session is
//! opened. Numbers are never given out again, so nothing that outlives a tenant can be mistaken for a
//! thing of another one.

pub mod account;
pub mod arrivals;
pub mod compile_time;
pub mod ledger;
pub mod limit;
pub mod rate;
pub mod remote;
pub mod secret;

/// Number of a tenant, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(pub u32);
