//! Servers that are away in turns: killed, or standing still as long as others believe in them or longer; or all are killed at once,
//! unless somebody is to keep what is in memory.

use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tests::patience::comes;
use tests::server::Server;

use super::town::{Tally, admin};

/// From the return of one to the next absence.
const BETWEEN_MS: std::ops::Range<u64> = 500..4_000;
/// One absence of two is as short as that: who stands still keeps its lease; others may begin to recover what a killed one has.
const SHORT_MS: std::ops::Range<u64> = 0..1_500;
/// The others are as long as that: who stands still for more than six seconds, its lease and as long again, has been replaced.
const LONG_MS: std::ops::Range<u64> = 3_000..18_000;

struct Absence {
    server: usize,
    /// Not killed.
    stands_still: bool,
    until: Instant,
}

/// Who is away; at most one at a time.
pub struct Absences {
    now: Option<Absence>,
    next: Instant,
    /// Whether all are never killed at once.
    spares_one: bool,
}

impl Absences {
    pub fn new(spares_one: bool) -> Absences {
        Absences { now: None, next: Instant::now() + Duration::from_secs(1), spares_one }
    }

    /// Whether a server is there, as far as anybody knows.
    pub fn is_there(&self, server: usize) -> bool {
        self.now.as_ref().is_none_or(|absence| absence.server != server)
    }

    /// Lets one go or return, if it is time, and starts those that have ended because they had been replaced.
    pub fn go_on(&mut self, servers: &mut [Server], random: &mut Rng, tally: &mut Tally) {
        for (index, server) in servers.iter_mut().enumerate() {
            if self.is_there(index) && !server.is_running() {
                server.restart();
                tally.replaced += 1;
            }
        }
        match &self.now {
            Some(absence) if absence.until <= Instant::now() => {
                let Absence { server, stands_still, .. } = *absence;
                if stands_still {
                    servers[server].pause(false);
                } else {
                    servers[server].restart();
                }
                self.now = None;
                self.next = Instant::now() + Duration::from_millis(random.u64(BETWEEN_MS));
            }
            None if self.next <= Instant::now() => self.begin(servers, random, tally),
            _ => {}
        }
    }

    fn begin(&mut self, servers: &mut [Server], random: &mut Rng, tally: &mut Tally) {
        if random.u8(0..8) == 0 && !self.spares_one {
            return all_die(servers, tally);
        }
        let server = random.usize(0..servers.len());
        let ms = if random.bool() { SHORT_MS } else { LONG_MS };
        let stands_still = random.bool();
        if stands_still {
            servers[server].pause(true);
            tally.standstills += 1;
        } else {
            servers[server].kill();
            tally.deaths += 1;
        }
        let until = Instant::now() + Duration::from_millis(random.u64(ms));
        self.now = Some(Absence { server, stands_still, until });
    }

    /// Lets everybody be there, after one more death of all, or of who is away.
    pub fn end(self, servers: &mut [Server], tally: &mut Tally) {
        if !self.spares_one {
            return all_die(servers, tally);
        }
        if let Some(Absence { server, .. }) = self.now {
            servers[server].kill();
            servers[server].restart();
        }
        comes("all servers are registered", || {
            // One that had been replaced may have to end first.
            for server in servers.iter_mut().filter_map(|server| (!server.is_running()).then_some(server)) {
                server.restart();
                tally.replaced += 1;
            }
            let registered = admin(&servers[0])?.server_list().ok()?;
            (registered.len() == servers.len()).then_some(())
        });
    }
}

/// Kills all servers, whatever they do, and starts them again.
fn all_die(servers: &mut [Server], tally: &mut Tally) {
    tally.deaths_of_all += 1;
    servers.iter_mut().for_each(Server::kill);
    // Each waits for the others.
    thread::scope(|scope| servers.iter_mut().for_each(|server| _ = scope.spawn(|| server.restart())));
}
