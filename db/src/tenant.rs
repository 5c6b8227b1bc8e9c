//! Tenants: their identity, their secrets, their limits, their usage.
//!
//! The data path knows a tenant by its number only; name and secret matter only when a session is opened. Numbers are
//! never reused, so nothing that outlives a tenant can be mistaken for another tenant's.

pub mod account;
pub mod compile_time;
pub mod ledger;
pub mod limit;
pub mod rate;
