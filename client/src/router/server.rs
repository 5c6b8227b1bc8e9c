//! A server of the cluster in a session: its address, the session with it, and its reachability.
//!
//! Opening a session with a further server, and probing a silent one, are background work. A thread does one task and
//! ends, within the timeouts of a connection and the opening; requests to other servers continue meanwhile. If the
//! session is dropped first, the thread continues unattended and ends the session that it opens.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use net::{Stream, Waker};
use wire::{Completion, LoggedReply, Opened};

use crate::Error;
use crate::config::{Identity, SessionSettings, resolve};
use crate::connection::Connection;
use crate::session_state::{SessionState, SessionStatistics, reopen, replies_at};

/// Silence after which a server that owes replies, or an opening, is probed, in microseconds.
pub(super) const SILENCE_US: u64 = 500_000;
/// Minimum time before an unreachable server is tried again, in microseconds.
const AWAY_US_MIN: u64 = 50_000;
/// Maximum of that time, which doubles with each failure.
const AWAY_US_MAX: u64 = 1_000_000;
/// Minimum time from one question for the replies of a session to the next, in microseconds.
const ASK_US_MIN: u64 = 50_000;
/// Maximum of that time, which doubles with each failure.
const ASK_US_MAX: u64 = 400_000;
/// Maximum time that one server has to answer it.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum time to transfer a record once it has begun. These streams carry none.
const RECORD_TIMEOUT: Duration = Duration::from_secs(1);

/// A server of the cluster, with or without a session.
#[derive(Default)]
pub(crate) struct Server {
    /// Number in the cluster. `None` for one that the caller named, until a map contains it.
    pub(super) number: Option<u32>,
    /// Host and port of its stream listener.
    pub(super) address: String,
    pub(crate) state: Option<SessionState>,
    /// A lost session whose requests wait for the server's return.
    lost: Option<SessionState>,
    /// The server's view at the last map request.
    pub(super) view: u64,
    opening: Option<Awaited<Reopened>>,
    /// The replies to the requests of the lost session, or of one that is silent, from a server that has recovered this one's log.
    recovered: Option<Awaited<Vec<LoggedReply>>>,
    /// When others are asked for them next.
    ask_at_us: u64,
    /// The latest time from one question to the next.
    ask_us: u64,
    /// Whether others were asked for them since the session was lost.
    has_asked_in_vain: bool,
    probe: Option<Awaited<()>>,
    /// Time of its last reply, or when it last owed nothing or proved to accept connections.
    pub(super) heard_us: u64,
    /// Time when it last was found silent: it accepts connections, as a stopped process does too, and answers nothing.
    silent_us: u64,
    /// Time when another server was last asked in its place.
    doubted_us: u64,
    away_until_us: u64,
    away_us: u64,
    /// The server is in its group's list of servers with something to send.
    pub(crate) is_ready: bool,
}

/// A session that was opened or resumed, with its settings, until somebody takes it; it ends if nobody does.
struct Reopened(Option<((Connection, Opened), SessionSettings)>);

impl Drop for Reopened {
    fn drop(&mut self) {
        drop(self.0.take().map(|(opened, settings)| SessionState::impatient(opened, settings)));
    }
}

/// What a look at a server found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing to do.
    Fine,
    /// It has answered nothing for [`SILENCE_US`], though it accepts connections. Others may own its tablets by now.
    Silent,
    /// The session has ended.
    Ended,
}

/// The reachability of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// A session is open.
    Open,
    /// A session is being opened.
    Opening,
    /// The last attempt failed a moment ago.
    Away,
}

impl Server {
    /// Returns the home server.
    pub(super) fn home(state: SessionState, address: String) -> Server {
        Server { address, view: state.view, state: Some(state), ..Server::default() }
    }

    /// Returns a server that a map names.
    pub(super) fn new(number: u32, address: &str) -> Server {
        Server { number: Some(number), address: address.to_owned(), ..Server::default() }
    }

    /// Returns a server that the caller named.
    pub(super) fn named(address: String) -> Server {
        Server { address, ..Server::default() }
    }

    /// Returns whether it can be asked at once, and answers as far as known.
    pub(super) fn is_usable(&self) -> bool {
        self.state.is_some() && !self.is_silent()
    }

    /// Returns whether the last attempt failed a moment ago.
    pub(super) fn is_away(&self, now_us: u64) -> bool {
        self.is_closed() && now_us < self.away_until_us
    }

    /// Returns whether there is neither a session nor one being opened.
    pub(super) fn is_closed(&self) -> bool {
        self.state.is_none() && self.opening.is_none()
    }

    /// Notes that another server is asked in place of this slow one.
    pub(super) fn doubt(&mut self, now_us: u64) {
        self.doubted_us = now_us + 1;
    }

    /// Returns whether the server has been slow since its last reply. Then it is asked last.
    pub(super) fn is_doubted(&self) -> bool {
        self.doubted_us > self.heard_us
    }

    /// Returns whether a session is being opened.
    pub(super) fn is_opening(&self) -> bool {
        self.opening.is_some()
    }

    /// Opens a session in the background, if needed. Does nothing shortly after a failed attempt.
    pub(super) fn reach(&mut self, now_us: u64, settings: &SessionSettings) -> Reach {
        if self.state.is_some() {
            return Reach::Open;
        }
        if self.opening.is_none() {
            if now_us < self.away_until_us {
                return Reach::Away;
            }
            let (address, settings) = (self.address.clone(), settings.clone());
            let resumption = self.lost.as_ref().and_then(SessionState::resumption);
            self.heard_us = now_us;
            self.opening = Some(Awaited::begin(settings.waker.clone(), move || {
                let identity = Identity { server: resolve(&address)?, address, ..settings.identity };
                let settings = SessionSettings { identity, ..settings };
                Ok(Reopened(Some((reopen(&settings, resumption)?, settings))))
            }));
        }
        Reach::Opening
    }

    /// Checks the background work. `is_owner`: some map has a tablet of this server.
    pub(super) fn look(
        &mut self,
        now_us: u64,
        (settings, is_owner): (&SessionSettings, bool),
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Look {
        // Taking over waits for the lost session's stream, and others would wait with it.
        let is_free = self.lost.as_ref().is_none_or(SessionState::has_free_stream);
        if let Some(opened) = self.opening.as_ref().filter(|_| is_free).and_then(Awaited::take) {
            self.opening = None;
            match opened {
                Ok(mut reopened) => {
                    let reopened = reopened.0.take();
                    reopened.map(|reopened| self.begin(now_us, reopened, statistics, complete));
                }
                Err(_) => self.go_away(now_us),
            }
            return Look::Fine;
        }
        if self.state.as_mut().is_some_and(SessionState::take_heard) {
            self.heard_us = now_us;
        }
        let Some(state) = &self.state else {
            let is_silent = self.is_opening() && self.is_late(now_us);
            return if is_silent { self.be_silent(now_us) } else { Look::Fine };
        };
        if state.is_lost() {
            return Look::Ended;
        }
        if state.outstanding() == 0 {
            self.heard_us = now_us;
        } else if self.is_silent() && !is_owner && !state.may_have_written() {
            return Look::Ended;
        }
        // Whoever calls once a second finds all of them silent in between.
        let owes = || state.has_streamed() || state.owes_since(now_us.saturating_sub(SILENCE_US));
        let is_late = self.is_late(now_us) && owes();
        match self.probe.as_ref().map(Awaited::take) {
            None if is_late => {
                let (address, connect_timeout) = (self.address.clone(), settings.config.connect_timeout);
                self.probe = Some(Awaited::begin(settings.waker.clone(), move || {
                    let server = resolve(&address)?;
                    let reached = Stream::connect(server, connect_timeout, RECORD_TIMEOUT);
                    reached.map(drop).map_err(|error| Error::Unreachable { address: server, error })
                }));
            }
            Some(Some(Ok(()))) => {
                self.probe = None;
                // Unless it has answered since.
                if is_late {
                    return self.be_silent(now_us);
                }
            }
            Some(Some(Err(_))) => {
                self.probe = None;
                self.go_away(now_us);
                return Look::Ended;
            }
            _ => {}
        }
        Look::Fine
    }

    /// Returns whether it has been silent for [`SILENCE_US`].
    fn is_late(&self, now_us: u64) -> bool {
        now_us.saturating_sub(self.heard_us) > SILENCE_US
    }

    /// Returns whether it was found silent, and has answered nothing since.
    pub(super) fn is_silent(&self) -> bool {
        self.silent_us > self.heard_us
    }

    /// Notes that a server that accepts connections answers nothing. It is asked last until it does.
    fn be_silent(&mut self, now_us: u64) -> Look {
        (self.heard_us, self.doubted_us, self.silent_us) = (now_us, now_us + 1, now_us + 1);
        Look::Silent
    }

    /// Goes on with the lost session if it was resumed, or begins another.
    fn begin(
        &mut self,
        now_us: u64,
        (opened, settings): ((Connection, Opened), SessionSettings),
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) -> &mut SessionState {
        let state = match self.lost.take_if(|lost| lost.is_resumed_by(&opened.1)) {
            Some(mut lost) => {
                lost.take_over(now_us, (opened, settings), statistics, complete);
                lost
            }
            None => SessionState::impatient(opened, settings),
        };
        (self.view, self.heard_us, self.away_us) = (state.view, now_us, 0);
        (self.probe, self.recovered, self.silent_us, self.doubted_us) = (None, None, 0, 0);
        self.state.insert(state)
    }

    /// Returns the session, opened or resumed now if there is none.
    pub(super) fn open(
        &mut self,
        now_us: u64,
        settings: &SessionSettings,
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Result<&mut SessionState, Error> {
        if self.state.is_none() {
            // Two sessions of one client would end each other.
            let awaited = self.opening.take().and_then(|opening| opening.wait().ok());
            let reopened = match awaited.and_then(|mut reopened| reopened.0.take()) {
                Some(reopened) => reopened,
                None => {
                    let resumption = self.lost.as_ref().and_then(SessionState::resumption);
                    (reopen(settings, resumption)?, settings.clone())
                }
            };
            self.begin(now_us, reopened, statistics, complete);
        }
        self.state.as_mut().ok_or(Error::SessionLost)
    }

    /// Suspends the session that has ended, or returns it if nothing in it waits for the server's return.
    pub(super) fn suspend(&mut self) -> Option<SessionState> {
        let mut state = self.state.take()?;
        if self.lost.is_some() || !state.suspend() {
            return Some(state);
        }
        (self.lost, self.has_asked_in_vain) = (Some(state), false);
        None
    }

    /// Asks the servers at these addresses for the replies to the requests of the lost session, or of one that is silent and
    /// whose server is no owner any more, in the background, and ends what they answer. Returns a session that is left by that.
    pub(super) fn ask_others(
        &mut self,
        now_us: u64,
        (settings, others, is_owner): (&SessionSettings, &[String], bool),
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Option<SessionState> {
        let is_left = self.is_silent() && !is_owner;
        let asked = self.lost.as_ref().or(self.state.as_ref().filter(|_| is_left));
        let (Some(asked), answer) = (asked, self.recovered.as_ref().map(Awaited::take)) else {
            self.recovered = None;
            return None;
        };
        match answer {
            Some(Some(Ok(replies))) => {
                (self.recovered, self.ask_us) = (None, 0);
                // Others have its log, so that it is over, whatever it still does.
                let left = if self.lost.is_none() { self.suspend() } else { None };
                self.lost.iter_mut().for_each(|lost| lost.end_recovered(now_us, &replies, complete));
                return left;
            }
            Some(Some(Err(_))) => {
                self.ask_us = (2 * self.ask_us).clamp(ASK_US_MIN, ASK_US_MAX);
                self.ask_at_us = now_us + self.ask_us;
                (self.recovered, self.has_asked_in_vain) = (None, true);
            }
            Some(None) => {}
            None if now_us >= self.ask_at_us => {
                let resumption = asked.resumption()?;
                self.ask_at_us = now_us + ASK_US_MIN;
                let (mut settings, others) = (settings.clone(), others.to_vec());
                for timeout in [&mut settings.config.connect_timeout, &mut settings.config.call_timeout] {
                    *timeout = ASK_TIMEOUT.min(*timeout);
                }
                self.recovered = Some(Awaited::begin(settings.waker.clone(), move || {
                    let mut answers = others.iter().map(|address| replies_at(address, &settings, resumption));
                    answers.find_map(Result::ok).ok_or(Error::SessionLost)
                }));
            }
            None => {}
        }
        None
    }

    /// Returns the session whose requests wait for the server's return.
    pub(super) fn lost(&mut self) -> Option<&mut SessionState> {
        self.lost.as_mut()
    }

    /// Returns whether requests wait for the server's return.
    pub(super) fn is_awaited(&self) -> bool {
        self.lost.is_some()
    }

    /// Returns the lost session if nothing in it waits any more, or the server has another one by now and no other has its replies.
    pub(super) fn take_useless(&mut self) -> Option<SessionState> {
        let (has_another, is_opening) = (self.state.is_some() && self.has_asked_in_vain, self.is_opening());
        // While it may be resumed, its end would end the session that comes.
        self.lost.take_if(|lost| has_another || (!is_opening && lost.resumption().is_none()))
    }

    /// Returns the time of the next [`Server::look`] if nothing arrives.
    pub(super) fn next_look_us(&self) -> Option<u64> {
        let waits = self.state.as_ref().is_some_and(|state| state.outstanding() > 0);
        (waits && self.probe.is_none()).then_some(self.heard_us + SILENCE_US)
    }

    fn go_away(&mut self, now_us: u64) {
        self.away_us = (2 * self.away_us).clamp(AWAY_US_MIN, AWAY_US_MAX);
        self.away_until_us = now_us + self.away_us;
    }
}

/// The future result of a thread.
struct Awaited<T> {
    answer: Receiver<Result<T, Error>>,
}

impl<T: Send + 'static> Awaited<T> {
    fn begin(waker: Waker, work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Awaited<T> {
        let (sender, answer) = channel();
        thread::spawn(move || {
            // The receiver may be gone.
            let _ = sender.send(work());
            waker.wake();
        });
        Awaited { answer }
    }

    /// Waits for the result.
    fn wait(self) -> Result<T, Error> {
        self.answer.recv().unwrap_or(Err(Error::SessionLost))
    }

    /// Returns the result, if it is there.
    fn take(&self) -> Option<Result<T, Error>> {
        match self.answer.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(Error::SessionLost)),
        }
    }
}
