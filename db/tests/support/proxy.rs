//! A way to an etcd, or to another server, that loses what it carries when the test says so, or breaks.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What becomes of bytes.
const CARRY: u8 = 0;
const LOSE_REQUESTS: u8 = 1;
const LOSE_ANSWERS: u8 = 2;
const BREAK: u8 = 3;
const CARRY_SLOWLY: u8 = 4;

/// What is carried slowly: so many bytes, then a pause. Some megabytes a second at most.
const SLOW_BYTES: usize = 4 << 10;
const SLOW_PAUSE: Duration = Duration::from_millis(1);

#[derive(Default)]
struct State {
    mode: AtomicU8,
    lost: AtomicUsize,
    open: Mutex<Vec<TcpStream>>,
}

pub struct Proxy {
    port: u16,
    state: Arc<State>,
}

impl Proxy {
    /// Listens on a port of its own and carries to `target`.
    pub fn start(target: &str) -> Self {
        let target = target.to_owned();
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        // The thread ends with the process of the test.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.mode.load(Ordering::SeqCst) == BREAK {
                    continue;
                }
                let Ok(server) = TcpStream::connect(&target) else { continue };
                carry(&client, &server, LOSE_REQUESTS, &shared);
                carry(&server, &client, LOSE_ANSWERS, &shared);
                let mut open = shared.open.lock().expect("no panic");
                open.extend([client, server]);
                if shared.mode.load(Ordering::SeqCst) == BREAK {
                    // It was broken while this came.
                    open.drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
                }
            }
        });
        Self { port, state }
    }

    /// Where it listens.
    pub fn member(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// There is no way any more.
    #[allow(dead_code, reason = "not every test that has proxies does so")]
    pub fn cut(&self) {
        self.state.mode.store(BREAK, Ordering::SeqCst);
        self.hang_up();
    }

    /// Requests still get there, answers do not come back.
    #[allow(dead_code, reason = "not every test that has proxies does so")]
    pub fn lose_answers(&self) {
        self.set(LOSE_ANSWERS);
    }

    /// Requests do not get there.
    #[allow(dead_code, reason = "not every test that has proxies does so")]
    pub fn lose_requests(&self) {
        self.set(LOSE_REQUESTS);
    }

    /// Everything takes long.
    #[allow(dead_code, reason = "not every test that has proxies does so")]
    pub fn slow_down(&self) {
        self.set(CARRY_SLOWLY);
    }

    fn set(&self, mode: u8) {
        self.state.lost.store(0, Ordering::SeqCst);
        self.state.mode.store(mode, Ordering::SeqCst);
    }

    /// Waits until something of so many bytes was lost.
    #[allow(dead_code, reason = "not every test that has proxies does so")]
    pub fn has_lost(&self, bytes: usize) {
        while self.state.lost.load(Ordering::SeqCst) < bytes {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Breaks all connections; those that come next lose nothing.
    pub fn heal(&self) {
        self.hang_up();
        self.state.mode.store(CARRY, Ordering::SeqCst);
    }

    fn hang_up(&self) {
        for stream in self.state.open.lock().expect("no panic").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn carry(from: &TcpStream, to: &TcpStream, losing: u8, state: &Arc<State>) {
    let (mut from, mut to) = (from.try_clone().expect("a stream"), to.try_clone().expect("a stream"));
    let state = Arc::clone(state);
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(bytes @ 1..) = from.read(&mut buffer) {
            let mode = state.mode.load(Ordering::SeqCst);
            if mode == losing {
                state.lost.fetch_add(bytes, Ordering::SeqCst);
                continue;
            }
            let (at_once, pause) = match mode {
                CARRY_SLOWLY => (SLOW_BYTES, SLOW_PAUSE),
                _ => (bytes, Duration::ZERO),
            };
            let carried = buffer[..bytes].chunks(at_once).try_for_each(|bytes| {
                thread::sleep(pause);
                to.write_all(bytes)
            });
            if carried.is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
