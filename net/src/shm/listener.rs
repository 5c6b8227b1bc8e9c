//! The server's side: a Unix socket at which clients of the same host attach to a core.
//!
//! ```text
//!   client: connects, sends its words              server: checks its user (SO_PEERCRED), Admission, a free place
//!           gets: memory and doorbell, or the reason   creates the memory, adds the channel to its port
//!           closes, dies                               ends the channel
//! ```
//! One thread does all of it, [`ShmListener::run`], and waits for no client: a silent connection is dropped after a
//! while. It keeps every channel until its port has released it, and unmaps its memory.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::attach::{ADMITTED, ATTACH_BYTES_MAX};
use super::channel::{Channel, End};
use super::channels::{ChannelPoint, PLACES};
use super::descriptor;
use super::region::Region;
use crate::listener::StopHandle;
use crate::sys;

/// The first byte of a refusal; the reason follows.
const REFUSED: u8 = 1;

/// Maximum connected clients that have sent nothing yet. For a further one, the longest silent client of the user with
/// the most such clients is dropped.
const ATTACHING_MAX: usize = 32;
/// Maximum time until a connected client sends its words.
const ATTACH_PATIENCE: Duration = Duration::from_secs(5);
/// Pause after a failed accept.
const BREATH: Duration = Duration::from_millis(20);
/// Interval of checks of the channels, in milliseconds.
const LOOK_MS: i32 = 100;

/// Maximum numbers of channels.
#[derive(Clone, Copy, Debug)]
pub struct ListenerLimits {
    /// Channels to one core.
    pub of_core: usize,
    /// Channels of one user, all cores together.
    pub of_user: usize,
}

/// A client that wants to attach.
#[derive(Clone, Copy, Debug)]
pub struct Attacher<'k> {
    /// The user id, as the kernel reports it.
    pub user: u32,
    /// The words that the client sent.
    pub words: &'k [u8],
}

/// The policy that admits clients.
pub trait Admission {
    /// Returns the core to which this client gets a channel.
    ///
    /// # Errors
    /// The reason of a refusal, as text.
    fn admit(&mut self, knocker: Attacher<'_>) -> Result<usize, String>;

    /// Returns whether a channel, which was admitted by these words, must end.
    fn is_over(&mut self, words: &[u8]) -> bool;

    /// Reports an event to people.
    fn note(&mut self, text: &str);
}

/// A connected client.
#[derive(Debug)]
struct Attaching {
    socket: UnixStream,
    user: u32,
    since: Instant,
}

/// An admitted client.
#[derive(Debug)]
struct Inside {
    link: Arc<Channel>,
    core: usize,
    place: usize,
    user: u32,
    words: Vec<u8>,
}

/// The listener for local clients.
#[derive(Debug)]
pub struct ShmListener {
    listener: UnixListener,
    path: PathBuf,
    stop: Arc<OwnedFd>,
    points: Vec<ChannelPoint>,
    limits: ListenerLimits,
    attaching: Vec<Attaching>,
    inside: Vec<Inside>,
    serial: u64,
}

impl ShmListener {
    /// Listens at `path`, in place of a server that has gone. `points` are those of the cores' ports.
    ///
    /// Every process that can reach the path may connect: the permissions of its directory decide.
    ///
    /// # Errors
    /// If the path is too long, another process listens there, or the directory refuses.
    pub fn open(path: &Path, points: Vec<ChannelPoint>, limits: ListenerLimits) -> io::Result<Self> {
        match descriptor::connect(path) {
            Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
            Err(_) => {}
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
        let stop = Arc::new(sys::eventfd()?);
        let limits = ListenerLimits { of_core: limits.of_core.min(PLACES), ..limits };
        let (attaching, inside) = (Vec::new(), Vec::new());
        Ok(Self { listener, path: path.to_owned(), stop, points, limits, attaching, inside, serial: 0 })
    }

    /// Returns a handle that ends [`ShmListener::run`].
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle::of(&self.stop)
    }

    /// Admits clients until it is stopped; then all channels end.
    ///
    /// # Errors
    /// If the socket breaks.
    pub fn run(mut self, admission: &mut impl Admission) -> io::Result<()> {
        while self.wait()? {
            self.accept();
            self.hear(admission);
            self.look_after(admission);
        }
        Ok(())
    }

    /// Sleeps until a client connects, sends something, or leaves; returns false when the listener is stopped.
    fn wait(&mut self) -> io::Result<bool> {
        let watch = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let mut watched =
            vec![watch(self.stop.as_raw_fd(), libc::POLLIN), watch(self.listener.as_raw_fd(), libc::POLLIN)];
        watched.extend(self.attaching.iter().map(|one| watch(one.socket.as_raw_fd(), libc::POLLIN)));
        let first_inside = watched.len();
        // Ended channels are not watched, because they would be readable all the time.
        let inside = self
            .inside
            .iter()
            .map(|one| if one.link.has_ended() { -1 } else { one.link.socket().as_raw_fd() });
        watched.extend(inside.map(|fd| watch(fd, 0)));
        descriptor::poll(&mut watched, LOOK_MS)?;
        for (one, watched) in self.inside.iter().zip(&watched[first_inside..]) {
            if watched.revents != 0 && one.link.end(End::Left) {
                self.points[one.core].tell();
            }
        }
        Ok(watched[0].revents == 0)
    }

    fn accept(&mut self) {
        // Bounded, so that a client that constantly connects does not delay the rest of the round.
        for _ in 0..ATTACHING_MAX {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Mostly out of descriptors: the client keeps waiting, and would be reported again at once.
                Err(_) => return thread::sleep(BREATH),
            };
            let Ok(user) = descriptor::peer_user(socket.as_fd()) else { continue };
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            if self.attaching.len() == ATTACHING_MAX {
                let gone = self.attaching.remove(who_gives_way(&self.attaching, |one| one.user));
                refuse(&gone.socket, "too many clients are attaching");
            }
            self.attaching.push(Attaching { socket, user, since: Instant::now() });
        }
    }

    /// Decides about the clients that have sent their words.
    fn hear(&mut self, admission: &mut impl Admission) {
        for one in std::mem::take(&mut self.attaching) {
            let mut words = [0; ATTACH_BYTES_MAX];
            match descriptor::receive(one.socket.as_fd(), &mut words) {
                Ok((0, _)) => {}
                Ok((bytes, _)) => self.decide(one, &words[..bytes], admission),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if one.since.elapsed() < ATTACH_PATIENCE {
                        self.attaching.push(one);
                    }
                }
                Err(_) => {}
            }
        }
    }

    fn decide(&mut self, one: Attaching, words: &[u8], admission: &mut impl Admission) {
        let Attaching { socket, user, .. } = one;
        let let_in = admission.admit(Attacher { user, words }).and_then(|core| {
            let place = self.place(core, user)?;
            self.let_in(&socket, core, place).map_err(|error| error.to_string())
        });
        match let_in {
            Ok((link, core, place)) => {
                self.inside.push(Inside { link, core, place, user, words: words.to_vec() });
            }
            Err(reason) => {
                admission.note(&reason);
                refuse(&socket, &reason);
            }
        }
    }

    /// Returns a free place at a core, within the limits of the core and of the user.
    fn place(&self, core: usize, user: u32) -> Result<usize, String> {
        let of_user = self.inside.iter().filter(|one| one.user == user).count();
        if of_user >= self.limits.of_user {
            return Err(format!("user {user} has the maximum number of channels: {of_user}"));
        }
        let is_free = |place: &usize| !self.inside.iter().any(|one| (one.core, one.place) == (core, *place));
        let place = (0..self.limits.of_core).find(is_free);
        place
            .filter(|_| core < self.points.len())
            .ok_or_else(|| "the core has the maximum number of channels".to_owned())
    }

    /// Creates a channel, adds it to its port, and passes the client its end.
    fn let_in(
        &mut self,
        socket: &UnixStream,
        core: usize,
        place: usize,
    ) -> io::Result<(Arc<Channel>, usize, usize)> {
        let (memory, doorbell) = (descriptor::memory()?, sys::eventfd()?);
        let region = Region::map(memory.as_fd())?;
        region.sign();
        self.serial += 1;
        let own = OwnedFd::from(socket.try_clone()?);
        let link = Arc::new(Channel::of_server(region, own, doorbell.try_clone()?, self.serial));
        self.points[core].join(place, Arc::clone(&link))?;
        if descriptor::send(socket.as_fd(), &[ADMITTED], &[memory.as_fd(), doorbell.as_fd()]).is_err() {
            // The channel has joined, so it ends as if the client had left: the port frees its place when it lets go.
            link.end(End::Left);
            self.points[core].tell();
        }
        Ok((link, core, place))
    }

    /// Ends channels that are no longer admitted, and forgets those that their port has released.
    fn look_after(&mut self, admission: &mut impl Admission) {
        for one in &self.inside {
            if !one.link.has_ended() && admission.is_over(&one.words) && one.link.end(End::Left) {
                self.points[one.core].tell();
            }
        }
        let points = &self.points;
        self.inside.retain(|one| {
            let is_used = Arc::strong_count(&one.link) > 1;
            if !is_used {
                points[one.core].forget(&one.link);
            }
            is_used
        });
    }
}

impl Drop for ShmListener {
    fn drop(&mut self) {
        for one in &self.inside {
            if one.link.end(End::Left) {
                self.points[one.core].tell();
            }
        }
        // A client that still finds the file finds no listener.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the index of the first client of the user with the most.
fn who_gives_way<T>(all: &[T], user: impl Fn(&T) -> u32) -> usize {
    let count = |of: u32| all.iter().filter(|one| user(one) == of).count();
    let most = all.iter().map(|one| count(user(one))).max();
    all.iter().position(|one| Some(count(user(one))) == most).unwrap_or(0)
}

fn refuse(socket: &UnixStream, reason: &str) {
    let mut answer = vec![REFUSED];
    answer.extend_from_slice(&reason.as_bytes()[..reason.floor_char_boundary(255)]);
    // A client that has left needs no reason.
    let _ = descriptor::send(socket.as_fd(), &answer, &[]);
}

#[cfg(test)]
mod tests {
    use super::who_gives_way;

    #[test]
    fn who_has_most_gives_way_and_of_those_the_first() {
        for (users, place) in
            [(&[7][..], 0), (&[1, 2, 2, 3], 1), (&[1, 2, 3, 3, 2, 3], 2), (&[5, 6, 6, 5], 0)]
        {
            assert_eq!(who_gives_way(users, |user| *user), place, "{users:?}");
        }
    }
}
