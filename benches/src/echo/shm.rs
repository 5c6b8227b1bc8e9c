//! The echo over the rings of shared memory, through the ports that server and client have.

use std::net::SocketAddr;
use std::thread::{self, JoinHandle};

use net::{
    Batch, Entry, HostPort, ListenerAddress, ListenerLimits, Outbox, Port, ShmListener, UdpConfig, shm,
};

use super::{Answering, Asking, PATIENCE};
use crate::process::Folder;

/// A port, and room for what arrives and leaves.
struct ShmEnd {
    port: HostPort,
    batch: Batch,
    outbox: Outbox,
}

/// The end at whose listener the other has knocked; both end together.
pub(super) struct Host {
    end: ShmEnd,
    stop: net::StopHandle,
    listener: Option<JoinHandle<()>>,
    /// Where the listener is.
    _folder: Folder,
}

/// The end that has knocked.
pub(super) struct Guest {
    end: ShmEnd,
    host: SocketAddr,
}

/// Lets everybody in, to the only core.
struct Everybody;

impl shm::Admission for Everybody {
    fn admit(&mut self, _: shm::Attacher<'_>) -> Result<usize, String> {
        Ok(0)
    }

    fn is_over(&mut self, _: &[u8]) -> bool {
        false
    }

    fn note(&mut self, text: &str) {
        eprintln!("{text}");
    }
}

/// Two ports and a link between them, for frames of up to `largest` bytes.
pub(super) fn pair(largest: usize) -> Result<(Host, Guest), String> {
    let failed = |error: std::io::Error| format!("cannot open the echo's ports: {error}");
    let (host, mut guest) = (ShmEnd::open().map_err(failed)?, ShmEnd::open().map_err(failed)?);
    if largest > host.port.frame_bytes_max() {
        return Err(format!("a frame has at most {} bytes", host.port.frame_bytes_max()));
    }
    let folder = Folder::make("echo")?;
    let address = ListenerAddress { path: folder.join("listener"), user: shm::own_user() };
    let limits = ListenerLimits { of_core: 1, of_user: 1 };
    let listener = ShmListener::open(&address.path, vec![host.port.link_point()], limits).map_err(failed)?;
    let stop = listener.stop_handle();
    // A listener that breaks lets nobody in, which the guest notices.
    let listener = thread::spawn(move || drop(listener.run(&mut Everybody)));
    let host = Host { end: host, stop, listener: Some(listener), _folder: folder };
    let pending = guest.port.attach(&address, b"echo");
    let link = match pending.and_then(|pending| guest.port.enter(pending, PATIENCE)) {
        Ok(Entry::Attached(link)) => link,
        Ok(Entry::Waiting(_)) => return Err("no shared memory: the listener says nothing".into()),
        Err(error) => return Err(format!("no shared memory: {error}")),
    };
    guest.port.set_peer(link).map_err(failed)?;
    Ok((host, Guest { end: guest, host: link }))
}

impl ShmEnd {
    fn open() -> std::io::Result<Self> {
        let port = HostPort::bind(SocketAddr::from(([127, 0, 0, 1], 0)), UdpConfig::default())?;
        let outbox = Outbox::new(port.frame_bytes_max());
        Ok(Self { port, batch: Batch::new(), outbox })
    }

    fn send(&mut self, frame: &[u8], peer: SocketAddr) -> Result<(), String> {
        self.outbox.push(frame, peer);
        self.port.send(&mut self.outbox).map(drop).map_err(|error| error.to_string())
    }

    fn receive(&mut self) -> Result<usize, String> {
        self.port.receive(&mut self.batch).map_err(|error| error.to_string())
    }
}

impl Answering for Host {
    fn turn(&mut self, reply: &[u8]) -> Result<(), String> {
        for frame in 0..self.end.receive()? {
            let (_, peer) = self.end.batch.frame(frame);
            self.end.send(reply, peer)?;
        }
        Ok(())
    }
}

impl Asking for Guest {
    fn send(&mut self, request: &[u8]) -> Result<(), String> {
        self.end.send(request, self.host)
    }

    fn take(&mut self) -> Result<bool, String> {
        Ok(self.end.receive()? > 0)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.stop();
        // One that panicked has said so.
        let _ = self.listener.take().map(JoinHandle::join);
    }
}
