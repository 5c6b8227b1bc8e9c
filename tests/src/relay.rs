//! A way to a server that can be cut, as when a network is divided: what is on it waits, and nobody is told.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const LOOK: Duration = Duration::from_millis(10);

/// A relay of TCP connections that a test can cut.
#[derive(Debug)]
pub struct Relay {
    port: u16,
    is_cut: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

impl Relay {
    /// Begins to relay connections to this port of the own machine.
    ///
    /// # Panics
    /// If the kernel gives no port.
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        listener.set_nonblocking(true).expect("it can be looked at");
        let own = listener.local_addr().expect("its address").port();
        let [is_cut, is_over] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (cut, over) = (Arc::clone(&is_cut), Arc::clone(&is_over));
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((near, _)) => connect(near, port, [&cut, &over]),
                    Err(_) => thread::sleep(LOOK),
                }
            }
        });
        Self { port: own, is_cut, is_over }
    }

    /// The port that takes connections.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Lets nothing pass, or everything again.
    pub fn cut(&self, cuts: bool) {
        self.is_cut.store(cuts, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn connect(near: TcpStream, port: u16, [cut, over]: [&Arc<AtomicBool>; 2]) {
    let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { return };
    for (from, to) in [(&near, &far), (&far, &near)] {
        let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { return };
        let (cut, over) = (Arc::clone(cut), Arc::clone(over));
        thread::spawn(move || {
            let _ = pass((&from, &to), &cut, &over);
            let _ = [from, to].map(|socket| socket.shutdown(Shutdown::Both));
        });
    }
}

fn pass(
    (mut from, mut to): (&TcpStream, &TcpStream),
    cut: &AtomicBool,
    over: &AtomicBool,
) -> std::io::Result<()> {
    from.set_nonblocking(false)?;
    from.set_read_timeout(Some(LOOK))?;
    let mut bytes = [0; 16 << 10];
    while !over.load(Ordering::Relaxed) {
        let read = match from.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(error) => return Err(error),
        };
        while cut.load(Ordering::Relaxed) && !over.load(Ordering::Relaxed) {
            thread::sleep(LOOK);
        }
        to.write_all(&bytes[..read])?;
    }
    Ok(())
}
