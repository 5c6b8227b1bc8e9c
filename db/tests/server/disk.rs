//! A disk that fills up: changes are refused with a typed status, nothing is half-made, and all else goes on.

use std::sync::atomic::Ordering;

use cluster::metadata::Metadata;
use control::{AdminRequest, ExtensionEntry};
use wire::{Condition, Request, Status};

use super::Site;
use super::extensions::{COUNTER, install, package};
use super::small_disk::SmallDisk;

#[test]
fn a_full_disk_refuses_an_installation_and_leaves_no_half() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = SmallDisk::new(64 << 20);
    let metadata = Metadata::open_with(disk.opener()).expect("room for an empty file");
    let site = Site::start_compiling(directory.path(), 1, metadata);
    let (mut client, table) = site.tenant_with_table("ann");
    let mut files = package(COUNTER);
    // Modules of text that the compiler skips and the disk has no room for.
    for module in ["a", "b", "c", "d", "e", "f", "g"] {
        files[1].1.extend(format!("\nmod {module};").as_bytes());
        let text = format!("// {}\n", "x".repeat(200)).repeat(1_200);
        files.push((format!("src/{module}.rs"), text.into_bytes()));
    }
    disk.room.store(0, Ordering::Relaxed);
    let refused = install(&mut client, "counter", &files).expect_err("no room");
    assert_eq!(refused.0, Status::StorageFull, "{}", String::from_utf8_lossy(&refused.1));
    let list = client.control.ask(&AdminRequest::ExtensionList).expect("a list");
    assert_eq!(control::decode::<Vec<ExtensionEntry>>(&list), Ok(Vec::new()));
    let put = Request::Put { table, key: b"k", value: b"v", condition: Condition::Always };
    assert_eq!(client.status(&put), Status::Ok, "data is not on this disk");

    disk.room.store(64 << 20, Ordering::Relaxed);
    let installed = install(&mut client, "counter", &files).expect("there is room now");
    assert_eq!(installed.version, 1);
}
