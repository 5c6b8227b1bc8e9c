//! Connections to the servers that have tablets of a tenant's tables, for what each of them does alone: archives, and promises
//! of durability.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use control::{Durability, Restored};
use wire::Status;
use xxhash_rust::xxh3::xxh3_64;

use crate::archive::key_of;
use crate::{Client, ClientConfig, Error};

/// Time in which every server of a cluster knows a new table, and a map is current that names the owner of a key.
const FOLLOWING: Duration = Duration::from_secs(5);
/// Pause before owners are asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// A connected client, and connections to other servers of its cluster, opened on demand.
pub struct Owners {
    client: Client,
    others: BTreeMap<String, Client>,
}

impl Owners {
    /// Begins with the connection to one server.
    #[must_use]
    pub fn of(client: Client) -> Owners {
        Owners { client, others: BTreeMap::new() }
    }

    /// Returns the connection that it began with.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Returns the servers that have tablets of these tables, as that server knows: addresses by number. A server outside
    /// a cluster has an empty address.
    ///
    /// # Errors
    /// A refusal of the server, or no reply.
    pub fn servers_of(&mut self, tables: &[u32]) -> Result<BTreeMap<u32, String>, Error> {
        let mut servers = BTreeMap::new();
        for &table in tables {
            // One that was dropped meanwhile has no map.
            let Some(map) = self.client.tablets_of(table)? else { continue };
            for tablet in map.tablets() {
                let server = &map.servers()[usize::from(tablet.server)];
                servers.entry(server.number).or_insert_with(|| server.address.clone());
            }
        }
        Ok(servers)
    }

    /// Returns the connection to a server by an address of [`Owners::servers_of`]; of an empty one that it began with.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn at(&mut self, address: &str) -> Result<&mut Client, Error> {
        let settings = self.client.session().settings();
        if address.is_empty() || address == settings.identity.address {
            return Ok(&mut self.client);
        }
        if !self.others.contains_key(address) {
            let (tenant, secret) = (&settings.identity.tenant, &settings.identity.secret);
            let config = ClientConfig { core_addresses: Vec::new(), ..settings.config.clone() };
            let other = Client::connect_with(address, tenant, secret, config)?;
            self.others.insert(address.to_owned(), other);
        }
        Ok(self.others.get_mut(address).expect("it was inserted"))
    }

    /// Changes the durability of a table; if to synced, at each server that has tablets of it. All objects have it when this
    /// returns, and later writes.
    ///
    /// # Errors
    /// As [`Client::table_alter`]. With the number of another server: the durability is changed, and that server has not
    /// confirmed that its disk has what was written there before; the change reaches it by itself.
    pub fn table_alter(&mut self, name: &str, durability: Durability) -> Result<(), (Option<u32>, Error)> {
        let of_first = |error| (None, error);
        self.client.table_alter(name, durability).map_err(of_first)?;
        if durability != Durability::Synced {
            return Ok(());
        }
        let table = self.client.table_open(name).map_err(of_first)?;
        let mut altered = BTreeSet::new();
        let until = Instant::now() + FOLLOWING;
        loop {
            // Tablets may move to another server meanwhile.
            let servers = self.servers_of(&[table]).map_err(of_first)?;
            let mut others = servers.into_iter().filter(|(number, _)| !altered.contains(number));
            let Some((number, address)) = others.next() else { return Ok(()) };
            match self.at(&address).and_then(|client| client.table_alter(name, durability)) {
                Ok(()) => _ = altered.insert(number),
                // A new table is not known there yet.
                Err(error) if error.status() == Some(Status::UnknownTable) && Instant::now() < until => {
                    thread::sleep(PAUSE);
                }
                Err(error) => return Err((Some(number), error)),
            }
        }
    }

    /// Stores objects of an archive in a table, by its name and id, each at the server that owns its key. Asks again while
    /// a new table or a new owner is not known everywhere; what was stored before counts as late then.
    ///
    /// # Errors
    /// As [`Client::archive_restore`], or [`Error::Unintelligible`] if an entry is none.
    pub fn restore(&mut self, (name, table): (&str, u32), entries: &[&[u8]]) -> Result<Restored, Error> {
        let (mut restored, mut until) = (Restored::default(), None);
        let mut left = entries.to_vec();
        loop {
            let mut by_owner: BTreeMap<String, Vec<&[u8]>> = BTreeMap::new();
            let map = self.client.tablets_of(table)?;
            for entry in left.drain(..) {
                let owner = match &map {
                    Some(map) if map.servers().len() > 1 => {
                        let key = key_of(entry)?;
                        let position = wire::position(key, xxh3_64(key), map.is_tagged(), xxh3_64);
                        &map.servers()[map.server_of(position)].address
                    }
                    Some(map) => &map.servers()[0].address,
                    None => "",
                };
                by_owner.entry(owner.to_owned()).or_default().push(entry);
            }
            let mut refusal = None;
            for (owner, entries) in by_owner {
                match self.at(&owner)?.archive_restore(name, &entries.concat()) {
                    Ok(Restored { stored, late }) => {
                        until = until.filter(|_| stored == 0);
                        (restored.stored, restored.late) = (restored.stored + stored, restored.late + late);
                    }
                    Err(error) => match error.status() {
                        Some(Status::NotOwned | Status::UnknownTable) => {
                            left.extend(entries);
                            refusal = Some(error);
                        }
                        _ => return Err(error),
                    },
                }
            }
            match refusal {
                None => return Ok(restored),
                Some(error) if Instant::now() > *until.get_or_insert_with(|| Instant::now() + FOLLOWING) => {
                    return Err(error);
                }
                Some(_) => thread::sleep(PAUSE),
            }
        }
    }
}
