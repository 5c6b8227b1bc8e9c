//! Functions at clients that scan and write: they see their own writes, and what appears in a range that they have scanned lets
//! them run again.

use std::collections::BTreeMap;
use std::thread;

use client::local::LocalFailure;
use client::{Client, Durability, KeyRange, Local, TableOptions};
use sandstorm::{Args, Db, Reply};
use tests::effort::{rng, rounds};
use tests::server::Server;

use super::end;

fn ordered(client: &mut Client) -> u32 {
    let durability = Some(Durability::Memory);
    let options = TableOptions { ordered: true, durability, ..TableOptions::default() };
    client.table_create_with("ordered", options).expect("a fresh name")
}

/// Writes the numbers of the arguments, odd ones as removals, and replies with the keys of a range as it sees them then, a line each.
/// Arguments: backward u8, then numbers u8.
async fn changed_keys(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), sandstorm::Error> {
    let mut reader = args.reader();
    let backward = reader.u8()? == 1;
    for number in reader.rest() {
        let key = [args.key(), &[number / 2]].concat();
        match number % 2 {
            0 => db.put(args.table(), &key, b"own").await?,
            _ => db.delete(args.table(), &key).await?,
        }
    }
    let range = sandstorm::KeyRange::prefix(args.key());
    let mut scan = db.scan(args.table(), if backward { range.reverse() } else { range });
    while let Some(entry) = scan.next().await? {
        reply.write(&entry.key[args.key().len()..])?;
        reply.write(&entry.value[..1])?;
    }
    Ok(())
}

#[test]
fn a_function_at_the_client_sees_its_own_writes_in_a_scan() {
    let server = Server::start();
    let mut client = server.client(&server.tenant("acme"));
    let table = ordered(&mut client);
    let mut random = rng();
    for round in 0..rounds(40, 400) {
        let prefix = format!("{round}:").into_bytes();
        let mut model: BTreeMap<u8, u8> = BTreeMap::new();
        for _ in 0..random.usize(0..90) {
            let number = random.u8(0..127);
            client.put(table, &[&prefix[..], &[number]].concat(), b"there").expect("room");
            model.insert(number, b't');
        }
        let writes: Vec<u8> = (0..random.usize(0..90)).map(|_| random.u8(0..254)).collect();
        for number in &writes {
            match number % 2 {
                0 => _ = model.insert(number / 2, b'o'),
                _ => _ = model.remove(&(number / 2)),
            }
        }
        let backward = random.bool();
        let mut local = Local::new(client.into_session());
        local.spawn(changed_keys, table, &prefix, &[&[u8::from(backward)], &writes[..]].concat());
        let mut expected: Vec<[u8; 2]> = model.iter().map(|(number, value)| [*number, *value]).collect();
        if backward {
            expected.reverse();
        }
        assert_eq!(end(&mut local).expect("it is committed"), expected.concat());
        client = Client::over(local.into_session());
        let range = KeyRange { prefix: &prefix, ..KeyRange::default() };
        let there = client.scan(table, range, usize::MAX).expect("a scan");
        let there = there.iter().map(|object| [object.key[prefix.len()], object.value[0]]);
        assert!(there.eq(model.iter().map(|(number, value)| [*number, *value])));
    }
}

/// Appends to a list of numbered keys, behind the last one.
async fn append(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), sandstorm::Error> {
    let mut last = db.scan(args.table(), sandstorm::KeyRange::prefix(args.key()).reverse());
    let next = match last.next().await? {
        Some(entry) => entry.key[args.key().len()] + 1,
        None => 0,
    };
    db.put(args.table(), &[args.key(), &[next]].concat(), b"").await?;
    reply.write(&[next])
}

#[test]
fn functions_at_clients_that_find_the_same_last_key_append_one_after_the_other() {
    const CLIENTS: usize = 4;
    const APPENDED: usize = 30;
    let server = Server::start();
    let acme = server.tenant("acme");
    let mut client = server.client(&acme);
    let table = ordered(&mut client);
    let mut appended: Vec<u8> = thread::scope(|scope| {
        let clients = [(); CLIENTS].map(|()| {
            let session = server.client(&acme).into_session();
            scope.spawn(move || {
                let (mut local, mut own) = (Local::new(session), Vec::new());
                while own.len() < APPENDED {
                    local.spawn(append, table, b"list:", b"");
                    match end(&mut local) {
                        Ok(number) => own.extend(number),
                        // Others were faster, again and again.
                        Err(LocalFailure::Function(sandstorm::Error::Conflict)) => {}
                        Err(failure) => panic!("{failure}"),
                    }
                }
                own
            })
        });
        clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect()
    });
    appended.sort_unstable();
    assert!(appended.into_iter().eq(0..(CLIENTS * APPENDED) as u8), "each number once");
    assert_eq!(client.scan(table, KeyRange::default(), usize::MAX).unwrap().len(), CLIENTS * APPENDED);
}

/// Writes how many objects there are under the argument.
async fn count(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), sandstorm::Error> {
    let mut scan = db.scan(args.table(), sandstorm::KeyRange::prefix(args.bytes()));
    let mut objects = 0_u32;
    while scan.next().await?.is_some() {
        objects += 1;
    }
    db.put(args.table(), args.key(), &objects.to_le_bytes()).await?;
    reply.u32(objects)
}

#[test]
fn a_function_at_the_client_scans_many_pages_and_commits_them_as_one_range() {
    let server = Server::start();
    let mut client = server.client(&server.tenant("acme"));
    let table = ordered(&mut client);
    let keys: Vec<Vec<u8>> = (0..900).map(|number| format!("object {number:03}").into_bytes()).collect();
    let objects: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &b"value"[..])).collect();
    assert!(client.multi_put(table, &objects).expect("a session").into_iter().all(|put| put.is_ok()));
    let mut local = Local::new(client.into_session());
    local.spawn(count, table, b"count", b"object ");
    assert_eq!(end(&mut local).expect("it is committed"), 900_u32.to_le_bytes());
}
