//! Archives while the cleaner moves objects and frees segments: each is a prefix of what one writer wrote.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use client::{Client, Durability};
use tests::patience::comes;
use tests::server::{Server, Settings, Tenant};

use super::{administrator, all, archive, create, name_of, text};

/// Keys that are written in turn.
const KEYS: u64 = 200;
/// Objects that are written once, so that segments have survivors.
const KEPT: u64 = 800;
const VALUE_BYTES: usize = 8_000;

fn value(number: u64) -> Vec<u8> {
    let mut value = vec![number as u8; VALUE_BYTES];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// Writes numbers from 1 on, number `n` under key `n % KEYS`; kept objects in between.
fn write(client: &mut Client, table: u32, (written, stop): (&AtomicU64, &AtomicBool)) {
    for number in KEPT + 1.. {
        // Writes that outrun the disk are refused until it has caught up.
        comes("there is room", || client.put(table, &(number % KEYS).to_le_bytes(), &value(number)).ok());
        written.store(number, Ordering::Relaxed);
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

#[test]
fn an_archive_while_the_cleaner_works_is_a_prefix_of_the_writes() {
    let arguments = ["--disk", "1GiB"].map(str::to_owned).to_vec();
    let (memory, segment) = ("48MiB".into(), "1MiB".into());
    let server = Server::start_with(Settings { memory, segment, arguments, ..Settings::default() });
    let place = tempfile::tempdir().expect("a directory");
    let ann = server.tenant("ann");
    let mut client = server.client(&ann);
    let table = create(&mut client, "data", Durability::Written, false);
    let kept = create(&mut client, "kept", Durability::Synced, false);
    for number in 1..=KEPT {
        client.put(kept, &number.to_le_bytes(), &value(number)).expect("there is room");
        client.put(table, &(number % KEYS).to_le_bytes(), &value(number)).expect("there is room");
    }
    let before = all(&mut client, "kept");
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let names = thread::scope(|scope| {
        let (mut writer, stop) = (server.client(&ann), &stop);
        let written = &written;
        scope.spawn(move || write(&mut writer, table, (written, stop)));
        let to = ["create", "--to", text(place.path())];
        let create = |rounds: u64| {
            comes("the log was cleaned", || (written.load(Ordering::Relaxed) > rounds * 4_000).then_some(()));
            archive(server.command(&ann), &to).map(|created| name_of(&created))
        };
        let names: Vec<_> = (1..=4).map(create).collect();
        stop.store(true, Ordering::Relaxed);
        names
    });
    drop(client);
    let mut newest = 0;
    for (index, name) in names.into_iter().enumerate() {
        let name = name.expect("an archive");
        let new = format!("new{index}");
        let from = ["--from", text(place.path())];
        let restore = [&["restore", &name, "--as", &new][..], &from].concat();
        let restored = archive(administrator(&server, &ann), &restore).expect("it is restored");
        let secret = restored["secret"].as_str().expect("a secret").to_owned();
        let mut client = server.client(&Tenant { name: new.clone(), secret });
        assert!(all(&mut client, "kept") == before, "objects of before are there, in their versions");
        let numbers = all(&mut client, "data").into_iter().map(|(key, _, value)| {
            let number = u64::from_le_bytes(value[..8].try_into().expect("8 bytes"));
            assert_eq!(key, (number % KEYS).to_le_bytes());
            number
        });
        let mut numbers: Vec<u64> = numbers.collect();
        numbers.sort_unstable();
        let last = *numbers.last().expect("it has objects");
        assert!(numbers.iter().copied().eq(last + 1 - KEYS..=last), "not a prefix: {numbers:?}");
        assert!(last >= newest && last >= KEPT, "{last} after {newest}");
        newest = last;
        drop(client);
        server.admin().tenant_drop(&new).expect("it is there");
    }
    // Several times the memory: without the cleaner there would have been no room.
    assert!(newest * VALUE_BYTES as u64 > 100 << 20, "{newest} writes");
}
