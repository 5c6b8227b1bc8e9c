//! Calls through the table: of nothing, of another type, beyond it.

use db::extension::Provenance;
use wire::Status;

use crate::ends::ends;
use crate::stage::{Stage, rounds, words};

#[test]
fn a_call_through_the_table_reaches_functions_of_its_type_alone() {
    let extension = ends(Provenance::Unknown);
    let mut stage = Stage::new();
    for _ in 0..rounds() {
        for (function, right) in [("indirect", &[0, 2][..]), ("indirect_other", &[1])] {
            for index in (0..10).chain([255, 1 << 16, 1 << 28, 1 << 31, (1 << 32) - 1]) {
                let (status, body) = stage.attack(&extension, function, &words(&[index]));
                if right.contains(&index) {
                    assert_eq!((status, body), (Status::Ok, words(&[9])), "{function} {index}");
                } else {
                    assert_eq!(status, Status::ExtensionPanicked, "{function} {index}");
                }
            }
        }
    }
}
