//! Archives that somebody has changed, forged objects, tenants who read what is another's, and a disk without room.

use std::fs;

use client::{Durability, Error, Status, archived_keys, archived_objects};
use tests::server::{Server, Settings};

use super::super::replies::refusal;
use super::{administrator, all, archive, create, name_of, start, text};

/// Objects of a tenant as an archive's pieces bring them.
fn entries(client: &mut client::Client) -> Vec<Vec<u8>> {
    let id = client.archive_begin().expect("an archive").id;
    let (mut entries, mut number) = (Vec::new(), 0);
    loop {
        let piece = client.archive_read(id, number, false).expect("a piece");
        let objects = archived_objects(&piece.records.0).expect("records");
        entries.extend(objects.iter().map(|object| object.entry.to_vec()));
        number += 1;
        if piece.is_last {
            return entries;
        }
    }
}

#[test]
fn nobody_reads_anothers_archive_or_objects() {
    let server = start();
    let [ann, bob] = ["ann", "bob"].map(|name| server.tenant(name));
    let (mut anns, mut bobs) = (server.client(&ann), server.client(&bob));
    for (client, value) in [(&mut anns, &b"the secret of ann"[..]), (&mut bobs, b"the word of bob")] {
        let table = create(client, "data", Durability::Synced, false);
        for key in 0..50_u32 {
            client.put(table, &key.to_le_bytes(), value).expect("there is room");
        }
    }
    // What bob writes looks like an entry that reaches into whatever follows it.
    let table = bobs.table_open("data").unwrap();
    let forged = entries(&mut bobs).remove(0);
    for shift in 0..8 {
        bobs.put(table, &[shift], &[&vec![0; usize::from(shift)][..], &forged[..20]].concat()).unwrap();
    }
    let begun = anns.archive_begin().expect("an archive");
    assert_eq!(refusal(bobs.archive_read(begun.id, 0, true)), Status::NotFound);
    assert_eq!(refusal(bobs.archive_source(begun.id, "x", 1)), Status::NotFound);
    assert_eq!(refusal(bobs.archive_end(begun.id)), Status::NotFound);
    let found = entries(&mut bobs);
    assert!(found.len() >= 58);
    let is_anns = |entry: &Vec<u8>| entry.windows(6).any(|bytes| bytes == b"secret");
    assert!(!found.iter().any(is_anns));
    // Pieces come in order: nobody names a place in the log.
    let id = bobs.archive_begin().expect("an archive").id;
    assert_eq!(refusal(bobs.archive_read(id, 5, true)), Status::OutOfRange);
    let piece = bobs.archive_read(id, 0, true).expect("a piece");
    assert_eq!(bobs.archive_read(id, 0, true).expect("again").records, piece.records);
    assert!(archived_keys(&piece.records.0).is_ok());
    // Ann's archive is still hers.
    assert!(anns.archive_read(begun.id, 0, true).is_ok());
}

#[test]
fn a_tenant_does_not_end_what_the_administrator_archives() {
    let server = start();
    let [ann, bob] = ["ann", "bob"].map(|name| server.tenant(name));
    let mut client = server.client(&ann);
    let table = create(&mut client, "data", Durability::Synced, false);
    client.put(table, b"key", b"value").unwrap();
    let mut admin = server.admin();
    let begun = admin.archive_begin("ann").expect("an archive");
    let own = client.archive_begin().expect("another one").id;
    assert!(admin.archive_read(begun.id, 0, true).is_ok());
    let again = admin.archive_begin("ann").expect("an archive").id;
    assert_eq!(refusal(admin.archive_read(begun.id, 0, true)), Status::NotFound, "one for each reader");
    assert!(client.archive_read(own, 0, true).is_ok());
    admin.archive_end(again).expect("it is there");
    // A damaged archive hides no other one, and one tenant's failure no other tenant's archive.
    create(&mut server.client(&bob), "data", Durability::Synced, false);
    let place = tempfile::tempdir().expect("a directory");
    let mut command = administrator(&server, &ann);
    command.env_remove("SPLINTER_TENANT");
    let created = archive(command, &["create", "--to", text(place.path())]).expect("both");
    let names: Vec<_> =
        created.as_array().into_iter().flatten().filter_map(|it| it["archive"].as_str()).collect();
    assert!(names[0].starts_with("ann/") && names[1].starts_with("bob/"), "{names:?}");
    fs::write(place.path().join(format!("{}.json", names[0])), b"{}").unwrap();
    let verify = ["archive", "verify", "--from", text(place.path())];
    let verified = server.command(&ann).args(verify).output().expect("the command runs");
    let [said, failed] = [&verified.stdout, &verified.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(said.contains(names[1]) && failed.contains(names[0]), "{said} {failed}");
    assert_eq!(verified.status.code(), Some(8));
}

#[test]
fn forged_objects_are_refused_one_by_one() {
    let server = start();
    let mut client = server.client(&server.tenant("ann"));
    let table = create(&mut client, "data", Durability::Synced, false);
    client.put(table, b"key", b"value").unwrap();
    let entry = entries(&mut client).remove(0);
    create(&mut client, "new", Durability::Synced, false);
    for at in 0..entry.len().min(28) {
        let mut changed = entry.clone();
        changed[at] ^= 1;
        let status = refusal(client.archive_restore("new", &changed));
        assert!(status == Status::Malformed, "byte {at}: {status:?}");
    }
    for cut in 1..entry.len() {
        assert_eq!(refusal(client.archive_restore("new", &entry[..cut])), Status::Malformed, "{cut}");
    }
    assert_eq!(refusal(client.archive_restore("new", &[0xff; 4_000])), Status::Malformed);
    assert_eq!(refusal(client.archive_restore("nothing", &entry)), Status::UnknownTable);
    assert!(all(&mut client, "new").is_empty());
    let stored = client.archive_restore("new", &[&entry[..], &entry].concat()).expect("it is sound");
    assert_eq!((stored.stored, stored.late), (1, 1));
    assert_eq!(all(&mut client, "new"), all(&mut client, "data"));
    assert_eq!(client.table_stat("new").unwrap().bytes, client.table_stat("data").unwrap().bytes);
}

#[test]
fn an_archive_that_was_changed_is_refused_and_nothing_is_left_of_it() {
    let (server, place) = (start(), tempfile::tempdir().expect("a directory"));
    let ann = server.tenant("ann");
    let mut client = server.client(&ann);
    let table = create(&mut client, "data", Durability::Synced, false);
    for key in 0..500_u32 {
        client.put(table, &key.to_le_bytes(), &[7; 100]).expect("there is room");
    }
    let created = archive(administrator(&server, &ann), &["create", "--to", text(place.path())]);
    let name = name_of(&created.expect("the administrator archives any tenant"));
    let from = ["--from", text(place.path())];
    let files: Vec<_> =
        fs::read_dir(place.path().join("ann/files")).unwrap().map(|file| file.unwrap().path()).collect();
    let manifest = place.path().join(format!("{name}.json"));
    for path in files.iter().chain([&manifest]) {
        let whole = fs::read(path).unwrap();
        let step = (whole.len() / 10).max(1);
        for at in (0..whole.len()).step_by(step) {
            let mut changed = whole.clone();
            changed[at] ^= 0x20;
            for bytes in [&changed[..], &whole[..at]] {
                fs::write(path, bytes).unwrap();
                let verify = archive(server.command(&ann), &[&["verify"][..], &from].concat());
                // Blanks of the manifest mean nothing.
                if path == &manifest && verify.is_ok() {
                    continue;
                }
                assert_eq!(verify.expect_err("it was changed").0, Some(8), "{} at {at}", path.display());
            }
        }
        fs::write(path, &whole[..whole.len() / 2]).unwrap();
        let restore = [&["restore", &name, "--as", "eve"][..], &from].concat();
        let (code, said) = archive(administrator(&server, &ann), &restore).expect_err("it was changed");
        assert_eq!(code, Some(8), "{said}");
        assert!(server.admin().tenant_list().unwrap().iter().all(|tenant| tenant.name != "eve"));
        fs::write(path, &whole).unwrap();
    }
    fs::remove_file(&files[0]).unwrap();
    assert!(archive(server.command(&ann), &[&["verify"][..], &from].concat()).is_err());
    for name in ["../ann", "ann/../x", "ann", "/etc/passwd"] {
        let refused = archive(server.command(&ann), &[&["restore", name][..], &from].concat());
        assert_eq!(refused.expect_err("no archive").0, Some(2), "{name}");
    }
}

#[test]
fn an_archive_ends_before_the_disk_is_full() {
    let arguments = ["--disk", "128MiB"].map(str::to_owned).to_vec();
    let settings =
        Settings { memory: "96MiB".into(), segment: "1MiB".into(), arguments, ..Settings::default() };
    let server = Server::start_with(settings);
    let mut client = server.client(&server.tenant("ann"));
    let table = create(&mut client, "data", Durability::Synced, false);
    let put = |client: &mut client::Client, round: u8| {
        let (keys, value) = ((0..1_000_u32).map(u32::to_le_bytes), vec![round; 16_000]);
        for keys in keys.collect::<Vec<_>>().chunks(50) {
            let objects: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &value[..])).collect();
            let results = client.multi_put(table, &objects).expect("the session lives");
            assert!(results.iter().all(Result::is_ok), "the disk is large enough: {results:?}");
        }
    };
    put(&mut client, 0);
    let id = client.archive_begin().expect("an archive").id;
    client.archive_read(id, 0, true).expect("a piece");
    (1..20).for_each(|round| put(&mut client, round));
    let refused = (1..).find_map(|piece| match client.archive_read(id, piece, true) {
        Err(Error::Refused { status, .. }) => Some(Some(status)),
        Err(error) => panic!("{error}"),
        Ok(piece) => piece.is_last.then_some(None),
    });
    assert_eq!(refused, Some(Some(Status::StorageFull)));
    assert!(!entries(&mut client).is_empty(), "another one can be made");
}
