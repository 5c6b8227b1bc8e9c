//! The choice of one version among the active ones of an extension.

use std::sync::Arc;

use wire::TenantId;

use crate::extension::log::ExtensionLog;
use crate::extension::native::Library;
use crate::extension::{ActiveVersions, Extension};
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
