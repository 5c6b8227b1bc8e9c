//! The echo over two sockets of kernel UDP.

use std::io::ErrorKind;
use std::net::UdpSocket;

use super::{Answering, Asking};

/// Bytes of the largest datagram of an echo.
const DATAGRAM_BYTES_MAX: usize = 65_507;

/// A socket, and room for what arrives.
pub(super) struct UdpEnd {
    socket: UdpSocket,
    arrived: Box<[u8]>,
}

/// Two sockets for datagrams of up to `largest` bytes; the second speaks with the first alone.
pub(super) fn pair(largest: usize) -> Result<(UdpEnd, UdpEnd), String> {
    if largest > DATAGRAM_BYTES_MAX {
        return Err(format!("a datagram has at most {DATAGRAM_BYTES_MAX} bytes"));
    }
    let end = || -> std::io::Result<UdpEnd> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_nonblocking(true)?;
        Ok(UdpEnd { socket, arrived: vec![0; largest + 1].into() })
    };
    let both = || -> std::io::Result<(UdpEnd, UdpEnd)> {
        let (answering, asking) = (end()?, end()?);
        asking.socket.connect(answering.socket.local_addr()?)?;
        Ok((answering, asking))
    };
    both().map_err(|error| format!("cannot open the echo's sockets: {error}"))
}

impl Answering for UdpEnd {
    fn turn(&mut self, reply: &[u8]) -> Result<(), String> {
        match self.socket.recv_from(&mut self.arrived) {
            Ok((_, peer)) => self.socket.send_to(reply, peer).map(drop).map_err(|error| error.to_string()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::hint::spin_loop();
                Ok(())
            }
            Err(error) => Err(format!("the echo cannot receive: {error}")),
        }
    }
}

impl Asking for UdpEnd {
    fn send(&mut self, request: &[u8]) -> Result<(), String> {
        self.socket.send(request).map(drop).map_err(|error| error.to_string())
    }

    fn take(&mut self) -> Result<bool, String> {
        match self.socket.recv(&mut self.arrived) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }
}
