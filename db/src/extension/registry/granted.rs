//! Granted extensions, as other tenants have them.
//!
//! A grant has its own [`Extension`] for each version: the owner's code with the other tenant's tables and log. So
//! execution needs no rule about grants: the reach is the caller's by construction. The registry keeps them, so that
//! only a control thread unmaps code here too.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::TenantId;

use super::{Live, Registry, VersionHistory};
use crate::extension::Extension;
use crate::extension::active_versions::ActiveVersions;

/// The versions of a granted extension, by number.
pub(super) type Granted = BTreeMap<u32, Arc<Extension>>;

impl Registry {
    /// Updates another tenant's grant of `owner`'s extension `name` to the owner's versions, under the number `id` and
    /// the name `called`. Returns the set for the workers; `None` if it cannot be invoked at present.
    pub fn grant(
        &self,
        (owner, name): (TenantId, &str),
        id: u32,
        to: TenantId,
        called: &str,
    ) -> Option<ActiveVersions> {
        let account = self.accounts.of(to);
        let mut live = self.live();
        let log = live.logs.entry(to).or_default().clone();
        let mut before = live.granted.remove(&id).unwrap_or_default();
        let history = live.extensions.get(&(owner, name.to_owned())).cloned();
        let versions = history.iter().flat_map(|history| &history.versions);
        let after: Granted = versions
            .map(|(version, installed)| {
                let fresh =
                    || Arc::new(installed.extension.granted(id, account.clone(), called, Arc::clone(&log)));
                (*version, before.remove(version).unwrap_or_else(fresh))
            })
            .collect();
        live.retire_granted(before);
        let active = history.and_then(|history| active(&history, &after));
        live.granted.insert(id, after);
        active
    }

    /// Ends a grant: retires its versions.
    pub fn revoke(&self, id: u32) {
        let mut live = self.live();
        if let Some(granted) = live.granted.remove(&id) {
            live.retire_granted(granted);
        }
    }
}

impl Live {
    fn retire_granted(&mut self, granted: Granted) {
        for extension in granted.into_values() {
            extension.retire();
            self.retired.push(extension);
        }
    }
}

fn active(history: &VersionHistory, granted: &Granted) -> Option<ActiveVersions> {
    history.active_of(|version| granted.get(&version).cloned())
}
