//! The sessions of a run, behind one face: all on one socket, or each on its own.
//!
//! Sessions on one socket share frames, as those of a proxy would; sessions apart are as many independent
//! clients, each of whose requests costs datagrams of its own. Called by [`crate::loading`] and
//! [`crate::drive`].

use client::{Client, ClientConfig, Completion, Error, Request, Session, SessionGroup};

use crate::options::Access;

/// Open sessions of one tenant.
pub struct Fleet {
    sessions: Sessions,
}

enum Sessions {
    Together(Box<SessionGroup>),
    Apart(Vec<Session>),
}

impl Fleet {
    /// Opens `count` sessions, `apart` on sockets of their own.
    pub fn open(access: &Access, count: usize, apart: bool) -> Result<Self, String> {
        let secret = access.secret()?;
        let address = access.address.to_string();
        let failed = |error: Error| format!("cannot open a session: {error}");
        let sessions = if apart {
            let open = |_| Session::open(&address, &access.tenant, &secret, ClientConfig::default());
            Sessions::Apart((0..count).map(open).collect::<Result<_, _>>().map_err(failed)?)
        } else {
            let mut group = SessionGroup::new(ClientConfig::default()).map_err(failed)?;
            for _ in 0..count {
                group.open(&address, &access.tenant, &secret).map_err(failed)?;
            }
            Sessions::Together(Box::new(group))
        };
        Ok(Self { sessions })
    }

    /// Number of sessions.
    pub fn len(&self) -> usize {
        match &self.sessions {
            Sessions::Together(group) => group.len(),
            Sessions::Apart(sessions) => sessions.len(),
        }
    }

    /// Whether there is no session.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Queues a request of a session; false when its window is full.
    pub fn submit(&mut self, session: usize, request: &Request<'_>, tag: u64) -> Result<bool, String> {
        let submitted = match &mut self.sessions {
            Sessions::Together(group) => group.submit(session, request, tag),
            Sessions::Apart(sessions) => sessions[session].submit(request, tag),
        };
        match submitted {
            Ok(()) => Ok(true),
            Err(Error::Full) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Sends and receives for all sessions; returns the number of completions.
    pub fn poll(&mut self, complete: &mut impl FnMut(usize, Completion<'_>)) -> Result<usize, String> {
        let lost = |error: Error| format!("the server is lost: {error}");
        match &mut self.sessions {
            Sessions::Together(group) => group.poll(complete).map_err(lost),
            Sessions::Apart(sessions) => {
                let mut completed = 0;
                for (index, session) in sessions.iter_mut().enumerate() {
                    completed += session.poll(&mut |completion| complete(index, completion)).map_err(lost)?;
                }
                Ok(completed)
            }
        }
    }
}

/// The id of the table, which is made if it is missing.
pub fn table(access: &Access) -> Result<u32, String> {
    let opened = connect(access)?.table_open_or_create(&access.table);
    opened.map_err(|error| format!("no table {}: {error}", access.table))
}

/// The id of an installed extension.
pub fn extension(access: &Access, name: &str) -> Result<u32, String> {
    let found = connect(access)?.extension_describe(name);
    let found = found.map_err(|error| {
        format!("no extension {name}: {error}; install it with `splinter ext install ext/{name}`")
    })?;
    Ok(found.extension)
}

fn connect(access: &Access) -> Result<Client, String> {
    Client::connect(&access.address.to_string(), &access.tenant, &access.secret()?)
        .map_err(|error| format!("cannot open a session: {error}"))
}
