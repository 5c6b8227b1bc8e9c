//! The invocable versions of an extension, and the choice of one for each invocation.
//!
//! A request that names a version gets it. Any other request gets the current version or, for a fixed percentage of
//! requests, the canary if one exists. A hash of client and sequence makes this choice; both are equal in every copy of
//! a request, so a retry uses the same version as the first copy.
//!
//! An `ActiveVersions` is immutable. The registry creates a new one for every change, and each worker replaces the old
//! one between two batches. Running invocations keep their version.

use std::sync::Arc;

use wire::TenantId;

use super::Extension;

/// The invocable versions of one extension.
#[derive(Clone, Debug)]
pub struct ActiveVersions {
    /// The number by which invocations name the extension.
    pub id: u32,
    /// The tenant that may invoke it.
    pub tenant: TenantId,
    current: Arc<Extension>,
    /// `None` for most extensions, which keeps the values in the workers' maps small.
    more: Option<Box<More>>,
}

/// The versions other than the current one.
#[derive(Clone, Debug, Default)]
struct More {
    canary: Option<(Arc<Extension>, u8)>,
    others: Vec<Arc<Extension>>,
}

impl ActiveVersions {
    /// Creates a set with one version only.
    #[must_use]
    pub fn of(current: Arc<Extension>) -> Self {
        Self { id: current.id, tenant: current.tenant, current, more: None }
    }

    /// Creates a set of a current version, an optional canary with its percentage, and versions invoked only by number.
    #[must_use]
    pub fn new(
        current: Arc<Extension>,
        canary: Option<(Arc<Extension>, u8)>,
        others: Vec<Arc<Extension>>,
    ) -> Self {
        let is_alone = canary.is_none() && others.is_empty();
        let more = (!is_alone).then(|| Box::new(More { canary, others }));
        Self { more, ..Self::of(current) }
    }

    /// Returns the version for a request: `version` if it is kept; for 0, the choice by the request's identity.
    #[inline]
    #[must_use]
    pub fn choose(&self, version: u32, client_id: u64, sequence: u64) -> Option<&Arc<Extension>> {
        if version != 0 {
            return self.named(version);
        }
        match self.more.as_ref().and_then(|more| more.canary.as_ref()) {
            Some((canary, percent)) if share_of(client_id, sequence) < *percent => Some(canary),
            _ => Some(&self.current),
        }
    }

    /// Returns the version for requests that name none and do not go to the canary.
    #[must_use]
    pub fn current(&self) -> &Arc<Extension> {
        &self.current
    }

    fn named(&self, version: u32) -> Option<&Arc<Extension>> {
        let canary = self.more.iter().flat_map(|more| &more.canary).map(|(canary, _)| canary);
        let others = self.more.iter().flat_map(|more| &more.others);
        let mut all = [&self.current].into_iter().chain(canary).chain(others);
        all.find(|extension| extension.version == version)
    }
}

/// Returns a number below 100 that is equal for every copy of a request.
#[inline]
fn share_of(client_id: u64, sequence: u64) -> u8 {
    let identity = sequence.wrapping_add(client_id.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    ((identity.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) % 100) as u8
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wire::TenantId;

    use super::ActiveVersions;
    use crate::extension::Extension;
    use crate::extension::log::ExtensionLog;
    use crate::extension::native::Library;
    use crate::tenant::account::Account;

    fn version(number: u32) -> Arc<Extension> {
        let library = Arc::new(Library::of(Vec::new()));
        let log = Arc::new(ExtensionLog::new());
        Arc::new(Extension::new(7, Arc::new(Account::new(TenantId(1))), "tao", number, library, log))
    }

    #[test]
    fn a_version_that_is_named_is_what_runs() {
        let active = ActiveVersions::new(version(3), Some((version(4), 99)), vec![version(1)]);
        for number in [1, 3, 4] {
            assert_eq!(active.choose(number, 1, 1).map(|found| found.version), Some(number));
        }
        assert!(active.choose(2, 1, 1).is_none());
        assert_eq!(ActiveVersions::of(version(9)).choose(0, 1, 1).map(|found| found.version), Some(9));
    }

    #[test]
    fn a_canary_gets_its_share_and_copies_of_a_request_stay_together() {
        for percent in [1, 10, 50, 99] {
            let active = ActiveVersions::new(version(1), Some((version(2), percent)), Vec::new());
            let goes =
                |client, sequence| active.choose(0, client, sequence).is_some_and(|found| found.version == 2);
            let shares = [
                (0..10_000).filter(|sequence| goes(5, *sequence)).count(),
                // Clients that make one call each, as the command does.
                (0..10_000).filter(|client| goes(*client, 1)).count(),
            ];
            for share in shares {
                let expected = usize::from(percent) * 100;
                assert!(share.abs_diff(expected) < 250, "{share} of 10,000 at {percent} percent");
            }
            assert!((0..1000).all(|sequence| goes(8, sequence) == goes(8, sequence)));
        }
    }
}
