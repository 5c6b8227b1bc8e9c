//! The sessions of a run, behind one face: all on one socket, or each on its own.
//!
//! Sessions on one socket share frames, as those of a proxy would; sessions apart are as many independent
//! clients, each of whose requests costs datagrams of its own. Their sockets are looked at in the order in
//! which they sent, since answers come in about that order, and all of them once a millisecond. Called by
//! [`crate::loading`] and [`crate::drive`].

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use client::{ClientConfig, Completion, Error, Request, Session, SessionGroup, SessionStatistics};
use net::Port;

use crate::options::Access;

/// Open sessions, on one socket or on several.
pub struct Fleet {
    sessions: Sessions,
}

enum Sessions {
    Together(Box<SessionGroup>),
    Apart(Apart),
}

/// Sessions with a socket each.
struct Apart {
    sessions: Vec<Session>,
    /// Sessions that have queued requests since the last poll.
    unsent: Vec<usize>,
    /// Sessions that wait for answers, the longest waiting first.
    waiting: VecDeque<usize>,
    /// Whether a session stands in `waiting`.
    waits: Vec<bool>,
    /// When all sockets were looked at.
    scanned: Instant,
}

/// How often all sockets are looked at, for what came out of order and for timers.
const SCAN_EVERY: Duration = Duration::from_millis(1);

impl Fleet {
    /// Opens `count` sessions, `apart` on sockets of their own.
    pub fn open(access: &Access, count: usize, apart: bool) -> Result<Self, String> {
        if !apart {
            let mut fleet = Self::nobody(access.config())?;
            return fleet.join(access, count).map(|()| fleet);
        }
        let (address, secret) = (access.address.to_string(), access.secret()?);
        let open = |_| Session::open(&address, &access.tenant, &secret, access.config());
        let opened = (0..count).map(open).collect::<Result<Vec<_>, _>>();
        Ok(Self::apart(opened.map_err(|error| access.not_opened(&error))?))
    }

    /// Opens `count` sessions over `port`: a single one has it to itself, several share it.
    pub fn over(
        port: Box<dyn Port>,
        access: &Access,
        config: ClientConfig,
        count: usize,
    ) -> Result<Self, String> {
        if count != 1 {
            let mut fleet = Self::together(SessionGroup::over(port, config));
            return fleet.join(access, count).map(|()| fleet);
        }
        let (address, secret) = (access.address.to_string(), access.secret()?);
        let opened = Session::open_over(port, &address, &access.tenant, &secret, config);
        Ok(Self::apart(vec![opened.map_err(|error| access.not_opened(&error))?]))
    }

    /// One socket, over which sessions of any tenants may be opened.
    pub fn nobody(config: ClientConfig) -> Result<Self, String> {
        let group = SessionGroup::new(config).map_err(|error| format!("no socket: {error}"))?;
        Ok(Self::together(group))
    }

    fn together(group: SessionGroup) -> Self {
        Self { sessions: Sessions::Together(Box::new(group)) }
    }

    fn apart(sessions: Vec<Session>) -> Self {
        Self { sessions: Sessions::Apart(Apart::new(sessions)) }
    }

    /// Opens `count` sessions more over the socket that all share.
    pub fn join(&mut self, access: &Access, count: usize) -> Result<(), String> {
        let (address, secret) = (access.address.to_string(), access.secret()?);
        if let Sessions::Together(group) = &mut self.sessions {
            for _ in 0..count {
                let opened = group.open(&address, &access.tenant, &secret);
                opened.map_err(|error| access.not_opened(&error))?;
            }
        }
        Ok(())
    }

    /// Lets streams rest, of which a server has fewer than sessions.
    pub fn rest_streams(&self, members: Range<usize>) {
        if let Sessions::Together(group) = &self.sessions {
            members.for_each(|member| group.rest_stream(member));
        }
    }

    /// What the sessions have moved; those that share a port together, else the first.
    pub fn statistics(&self) -> SessionStatistics {
        match &self.sessions {
            Sessions::Together(group) => group.statistics(),
            Sessions::Apart(apart) => apart.sessions.first().map(Session::statistics).unwrap_or_default(),
        }
    }

    /// Number of sessions.
    pub fn sessions(&self) -> usize {
        match &self.sessions {
            Sessions::Together(group) => group.len(),
            Sessions::Apart(apart) => apart.sessions.len(),
        }
    }

    /// Queues a request of a session; false when its window is full.
    pub fn submit(&mut self, session: usize, request: &Request<'_>, tag: u64) -> Result<bool, String> {
        let submitted = match &mut self.sessions {
            Sessions::Together(group) => group.submit(session, request, tag),
            Sessions::Apart(apart) => apart.submit(session, request, tag),
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
            Sessions::Apart(apart) => apart.poll(complete).map_err(lost),
        }
    }
}

impl Apart {
    fn new(sessions: Vec<Session>) -> Self {
        Self {
            unsent: Vec::new(),
            waiting: VecDeque::new(),
            waits: vec![false; sessions.len()],
            scanned: Instant::now(),
            sessions,
        }
    }

    fn submit(&mut self, session: usize, request: &Request<'_>, tag: u64) -> Result<(), Error> {
        self.sessions[session].submit(request, tag)?;
        if self.unsent.last() != Some(&session) {
            self.unsent.push(session);
        }
        Ok(())
    }

    fn poll(&mut self, complete: &mut impl FnMut(usize, Completion<'_>)) -> Result<usize, Error> {
        for session in self.unsent.drain(..) {
            self.sessions[session].flush()?;
            if !self.waits[session] {
                self.waits[session] = true;
                self.waiting.push_back(session);
            }
        }
        let scan = self.scanned.elapsed() >= SCAN_EVERY;
        if scan {
            self.scanned = Instant::now();
        }
        let mut completed = 0;
        for _ in 0..self.waiting.len() {
            let Some(index) = self.waiting.pop_front() else { break };
            let session = &mut self.sessions[index];
            let found = session.poll(&mut |completion| complete(index, completion))?;
            completed += found;
            if session.outstanding() == 0 {
                self.waits[index] = false;
            } else if found == 0 && !scan {
                self.waiting.push_front(index);
                break;
            } else {
                self.waiting.push_back(index);
            }
        }
        Ok(completed)
    }
}

/// The id of the table, which is made if it is missing.
pub fn table(access: &Access) -> Result<u32, String> {
    access.table_id(&mut access.connect()?)
}

/// The id of an installed extension.
pub fn extension(access: &Access, name: &str) -> Result<u32, String> {
    let found = access.connect()?.extension_describe(name);
    let found = found.map_err(|error| {
        format!("no extension {name}: {error}; install it with `splinter ext install ext/{name}`")
    })?;
    Ok(found.extension)
}
