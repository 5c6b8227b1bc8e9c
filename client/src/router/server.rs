//! A server of the cluster as a session knows it: where it is, the exchange with it, and whether it is away.

use net::Waker;

use super::opening::{self, Awaited};
use crate::ClientConfig;
use crate::config::Identity;
use crate::session_state::SessionState;

/// A server that owes answers and says nothing for so long is asked over a stream whether it is there.
const SILENCE_US: u64 = 500_000;
/// A server that is away is not tried again before.
const AWAY_US_MIN: u64 = 50_000;
/// The longest such time; it doubles up to here.
const AWAY_US_MAX: u64 = 1_000_000;

/// See the file's head.
#[derive(Default)]
pub(crate) struct Server {
    /// Its number in the cluster; `None` for the one that was named, until a map tells.
    pub(super) number: Option<u32>,
    /// Host and port of its streams.
    pub(super) address: String,
    pub(crate) exchange: Option<SessionState>,
    /// Its view when the maps were asked for last.
    pub(super) view: u64,
    opening: Option<Awaited<SessionState>>,
    probe: Option<Awaited<()>>,
    /// When it last said something, or owed nothing.
    pub(super) heard_us: u64,
    /// When somebody else was last asked in its place.
    doubted_us: u64,
    away_until_us: u64,
    away_us: u64,
    /// For a group of sessions: it stands in the list of those that have something to send.
    pub(crate) is_ready: bool,
}

/// How a request gets to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// There is a session.
    Open,
    /// One is being opened.
    Opening,
    /// There was no way a moment ago.
    Away,
}

/// What has become of a server meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    None,
    /// A session has been opened, or could not be.
    Settled,
    /// Its session is over.
    Lost,
}

impl Server {
    /// The one that was named.
    pub(super) fn home(exchange: SessionState, address: String) -> Server {
        Server { address, view: exchange.view(), exchange: Some(exchange), ..Server::default() }
    }

    /// One that a map has named.
    pub(super) fn new(number: u32, address: &str) -> Server {
        Server { number: Some(number), address: address.to_owned(), ..Server::default() }
    }

    /// Whether there was no way to it a moment ago.
    pub(super) fn is_away(&self, now_us: u64) -> bool {
        self.is_closed() && now_us < self.away_until_us
    }

    /// Whether it is nothing but a name.
    pub(super) fn is_closed(&self) -> bool {
        self.exchange.is_none() && self.opening.is_none()
    }

    /// It takes its time, and another server is asked in its place.
    pub(super) fn doubt(&mut self, now_us: u64) {
        self.doubted_us = now_us;
    }

    /// Whether it has taken its time since: better asked last.
    pub(super) fn is_doubted(&self) -> bool {
        self.doubted_us > self.heard_us
    }

    /// Whether a session is being opened.
    pub(super) fn is_opening(&self) -> bool {
        self.opening.is_some()
    }

    /// Makes sure that there is a session, or will be, unless there was no way a moment ago.
    pub(super) fn reach(
        &mut self,
        now_us: u64,
        identity: &Identity,
        config: &ClientConfig,
        (frame_bytes_max, waker): (usize, &Waker),
    ) -> Reach {
        if self.exchange.is_some() {
            return Reach::Open;
        }
        if self.opening.is_none() {
            if now_us < self.away_until_us {
                return Reach::Away;
            }
            let secret = (identity.tenant.clone(), identity.secret.clone());
            let opening =
                opening::open(self.address.clone(), secret, config.clone(), (frame_bytes_max, waker.clone()));
            self.opening = Some(opening);
        }
        Reach::Opening
    }

    /// Looks after what is in the background.
    pub(super) fn look(&mut self, now_us: u64, config: &ClientConfig, waker: &Waker) -> News {
        if let Some(opened) = self.opening.as_ref().and_then(Awaited::take) {
            self.opening = None;
            match opened {
                Ok(mut exchange) => {
                    exchange.lose_patience();
                    self.view = exchange.view();
                    self.exchange = Some(exchange);
                    (self.heard_us, self.away_us) = (now_us, 0);
                }
                Err(_) => self.go_away(now_us),
            }
            return News::Settled;
        }
        let Some(exchange) = &self.exchange else { return News::None };
        if exchange.is_lost() {
            return News::Lost;
        }
        if exchange.outstanding() == 0 {
            self.heard_us = now_us;
        }
        match self.probe.as_ref().map(Awaited::take) {
            None if now_us.saturating_sub(self.heard_us) > SILENCE_US => {
                self.probe =
                    Some(opening::probe(self.address.clone(), config.connect_timeout, waker.clone()));
            }
            Some(Some(Ok(()))) => {
                // One that was stopped takes connections too: the doubt stays.
                let doubted_us = if self.is_doubted() { now_us + 1 } else { 0 };
                (self.probe, self.heard_us, self.doubted_us) = (None, now_us, doubted_us);
            }
            Some(Some(Err(_))) => {
                self.probe = None;
                self.go_away(now_us);
                return News::Lost;
            }
            _ => {}
        }
        News::None
    }

    /// When [`Server::look`] has to look again if nothing arrives.
    pub(super) fn next_look_us(&self) -> Option<u64> {
        let waits = self.exchange.as_ref().is_some_and(|exchange| exchange.outstanding() > 0);
        (waits && self.probe.is_none()).then_some(self.heard_us + SILENCE_US)
    }

    fn go_away(&mut self, now_us: u64) {
        self.away_us = (2 * self.away_us).clamp(AWAY_US_MIN, AWAY_US_MAX);
        self.away_until_us = now_us + self.away_us;
    }
}
