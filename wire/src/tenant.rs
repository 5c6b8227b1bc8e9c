//! The number of a tenant, as servers and metadata know it.

/// The number of a tenant, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(pub u32);
