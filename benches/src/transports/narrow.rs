//! Ports that a measurement puts before another one: frames with room for one request, and a loan.
//!
//! A client makes its frames as long as its port takes them. One over a [`Narrow`] port finds room for a single request,
//! so that each of its frames carries one, as those of as many clients would. A [`Lent`] port comes back when the session
//! over it is gone: a device can be taken once, and data has to be loaded before anything is measured.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use net::shm::{AttachError, Entry, PendingAttach};
use net::{Batch, ListenerAddress, Outbox, Port, Waker};
use wire::FrameWriter;
use wire::limits::FRAME_BYTES_MAX;

use crate::workload::Source;

/// Requests that are looked at to find the largest.
const LOOKS: usize = 10_000;

/// Bytes of a frame with the largest request of `source`, and no room for another one that is as large.
pub fn frame_bytes_of_one(source: &mut impl Source) -> usize {
    let most = (0..LOOKS).map(|_| source.next(|request, _| request.body_bytes())).max().unwrap_or(0);
    frame_bytes(&[most])
}

/// Bytes of a frame of one session with requests of these sizes.
fn frame_bytes(bodies: &[usize]) -> usize {
    let mut buffer = vec![0; FRAME_BYTES_MAX + bodies.iter().sum::<usize>()];
    let mut writer = FrameWriter::new();
    writer.start(&mut buffer, 0);
    writer.group(&mut buffer, 0, 0, 0);
    for body in bodies {
        writer.message(&mut buffer, 0, 0, 0, *body);
    }
    writer.finish(&mut buffer)
}

/// A port whose frames are shorter than they could be.
pub struct Narrow {
    port: Box<dyn Port>,
    frame_bytes_max: usize,
}

impl Narrow {
    /// Frames of `port` with so many bytes at most.
    pub fn new(port: Box<dyn Port>, frame_bytes_max: usize) -> Self {
        Self { frame_bytes_max: frame_bytes_max.min(port.frame_bytes_max()), port }
    }
}

/// A port that is given back.
pub struct Lent {
    port: Arc<Mutex<Box<dyn Port>>>,
}

impl Lent {
    /// The port as a borrower sees it, and what gets it back.
    pub fn new(port: Box<dyn Port>) -> (Self, Owner) {
        let port = Arc::new(Mutex::new(port));
        (Self { port: Arc::clone(&port) }, Owner { port })
    }

    fn port(&self) -> MutexGuard<'_, Box<dyn Port>> {
        self.port.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whose port was lent.
pub struct Owner {
    port: Arc<Mutex<Box<dyn Port>>>,
}

impl Owner {
    /// The port, once the borrower is gone.
    pub fn take_back(self) -> Option<Box<dyn Port>> {
        let port = Arc::into_inner(self.port)?;
        Some(port.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What passes everything on but what it says itself.
macro_rules! passes_on {
    ($self:ident => $port:expr) => {
        fn receive(&mut $self, batch: &mut Batch) -> io::Result<usize> {
            $port.receive(batch)
        }

        fn send(&mut $self, out: &mut Outbox) -> io::Result<usize> {
            $port.send(out)
        }

        fn wait(&mut $self, timeout: Duration) -> io::Result<()> {
            $port.wait(timeout)
        }

        fn set_peer(&mut $self, peer: SocketAddr) -> io::Result<()> {
            $port.set_peer(peer)
        }

        fn forget_peer(&mut $self) -> io::Result<()> {
            $port.forget_peer()
        }

        fn attach(&mut $self, listener: &ListenerAddress, words: &[u8]) -> Result<PendingAttach, AttachError> {
            $port.attach(listener, words)
        }

        fn enter(&mut $self, pending: PendingAttach, patience: Duration) -> Result<Entry, AttachError> {
            $port.enter(pending, patience)
        }

        fn is_attached(&$self, peer: SocketAddr) -> bool {
            $port.is_attached(peer)
        }

        fn waker(&$self) -> Waker {
            $port.waker()
        }

        fn steering(&$self) -> &'static str {
            $port.steering()
        }

        fn local(&$self) -> SocketAddr {
            $port.local()
        }

        fn drops(&$self) -> u64 {
            $port.drops()
        }
    };
}

impl Port for Narrow {
    passes_on!(self => self.port);

    fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }
}

impl Port for Lent {
    passes_on!(self => self.port());

    fn frame_bytes_max(&self) -> usize {
        self.port().frame_bytes_max()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use net::{Batch, HostPort, Outbox, Port, UdpConfig};

    use super::{Lent, Narrow, frame_bytes, frame_bytes_of_one};
    use crate::dataset::Dataset;
    use crate::workload::{Generator, Target, Workload};

    fn port() -> Box<dyn Port> {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Box::new(HostPort::bind(any, UdpConfig::default()).expect("a free port"))
    }

    #[test]
    fn a_frame_for_one_request_has_no_room_for_two() {
        let target = Target { table: 1, extension: 1, records: 8, seed: 1 };
        for workload in [Workload::Ping, Workload::Get, Workload::InvokeGet, Workload::Put] {
            let data = Dataset::new(1_000, 30, 100).expect("a data set");
            let mut source = Generator::new(workload, target, data, 0.0).expect("a generator");
            let one = frame_bytes_of_one(&mut source);
            let body = one - frame_bytes(&[0]);
            assert_eq!(one, frame_bytes(&[body]));
            assert!(frame_bytes(&[body, 0]) > one, "{workload:?}: not even an empty one fits besides");
        }
    }

    #[test]
    fn a_narrow_port_passes_frames_on_and_says_what_it_takes() {
        let (mut there, back) = (port(), port());
        let mut narrow = Narrow::new(back, 64);
        assert_eq!((narrow.frame_bytes_max(), narrow.steering()), (64, there.steering()));
        assert_eq!(Narrow::new(port(), 1 << 20).frame_bytes_max(), there.frame_bytes_max());
        let mut out = Outbox::new(narrow.frame_bytes_max());
        assert!(out.push(b"frame", there.local()));
        narrow.set_peer(there.local()).expect("a way there");
        assert_eq!(narrow.send(&mut out).expect("it leaves"), 1);
        there.wait(std::time::Duration::from_secs(5)).expect("a working port");
        let mut batch = Batch::new();
        assert_eq!(there.receive(&mut batch).expect("a working port"), 1);
        assert_eq!(batch.frames().next(), Some((b"frame".as_slice(), narrow.local())));
    }

    #[test]
    fn a_lent_port_comes_back_when_the_borrower_is_gone() {
        let port = port();
        let local = port.local();
        let (lent, owner) = Lent::new(port);
        assert_eq!(lent.local(), local);
        drop(lent);
        assert_eq!(owner.take_back().expect("nobody has it").local(), local);
        let (kept, owner) = Lent::new(self::port());
        assert!(owner.take_back().is_none() && kept.frame_bytes_max() > 0);
    }
}
