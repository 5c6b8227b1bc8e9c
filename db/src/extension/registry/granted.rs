//! Extensions as other tenants have them, to whom they are granted.
//!
//! A grant has its own [`Extension`] for each version: the owner's code with the other tenant's tables and log.
//! So whatever runs it needs no rule about grants: what it may reach is the caller's, by construction. The
//! registry keeps them, so that here too code is unmapped by a control thread alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Live, Registry, VersionHistory};
use crate::extension::Extension;
use crate::extension::active_versions::ActiveVersions;
use crate::tenant::TenantId;

/// Versions by number, as another tenant has them.
pub(super) type Granted = BTreeMap<u32, Arc<Extension>>;

impl Registry {
    /// Brings what another tenant has of `owner`'s extension `name` to what the owner has: under the number
    /// `id` and as `called`. Gives what workers are to know; `None` when it cannot be invoked at present.
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
        let lineage = live.extensions.get(&(owner, name.to_owned())).cloned();
        let versions = lineage.iter().flat_map(|lineage| &lineage.versions);
        let after: Granted = versions
            .map(|(version, installed)| {
                let fresh =
                    || Arc::new(installed.extension.granted(id, account.clone(), called, Arc::clone(&log)));
                (*version, before.remove(version).unwrap_or_else(fresh))
            })
            .collect();
        live.retire_granted(before);
        let lineup = lineage.and_then(|lineage| lineup(&lineage, &after));
        live.granted.insert(id, after);
        lineup
    }

    /// Ends a grant: the versions are retired.
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

fn lineup(lineage: &VersionHistory, granted: &Granted) -> Option<ActiveVersions> {
    lineage.lineup_of(|version| granted.get(&version).cloned())
}
