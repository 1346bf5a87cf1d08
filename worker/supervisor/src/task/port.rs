//! Reservation of a gang's rendezvous port, from its choice until the task that listens on it begins.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use muster_model::desired::{MASTER_PORT_MIN, MASTER_PORTS};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

/// A port that no other process on this host can bind while this value lives, except a task that shares
/// addresses (`SO_REUSEADDR`).
#[derive(Debug)]
pub(crate) struct ReservedPort {
    port: u16,
    _socket: OwnedFd,
}

impl ReservedPort {
    /// Reserves the first free rendezvous port, counted from `first`.
    ///
    /// # Errors
    /// `EADDRINUSE` if none is free; otherwise errors of the kernel.
    pub(crate) fn from(first: u16) -> Result<Self, Errno> {
        let offset = first.saturating_sub(MASTER_PORT_MIN) % MASTER_PORTS;
        let offsets = (offset..MASTER_PORTS).chain(0..offset);
        for port in offsets.map(|offset| MASTER_PORT_MIN + offset) {
            match reserve(port) {
                Err(Errno::ADDRINUSE) => {}
                Err(error) => return Err(error),
                Ok(socket) => {
                    return Ok(Self {
                        port,
                        _socket: socket,
                    });
                }
            }
        }
        Err(Errno::ADDRINUSE)
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }
}

/// Binds exclusively, so that two supervisors never reserve the same port; allows sharing afterwards.
fn reserve(port: u16) -> Result<OwnedFd, Errno> {
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))?;
    set_socket_reuseaddr(&socket, true)?;
    Ok(socket)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_reserved_port_is_reserved_once_and_the_task_may_listen_on_it() {
        let first = ReservedPort::from(27_113).unwrap();
        let second = ReservedPort::from(first.port()).unwrap();
        assert_ne!(first.port(), second.port());
        // Listeners of the standard library share addresses, like those of training frameworks.
        let listener = TcpListener::bind(("0.0.0.0", first.port())).unwrap();
        let third = ReservedPort::from(first.port()).unwrap();
        assert_ne!(third.port(), first.port(), "a process listens there");
        drop((listener, first));
    }

    #[test]
    fn a_port_is_free_again_when_it_is_let_go() {
        let port = ReservedPort::from(28_731).unwrap().port();
        assert_eq!(ReservedPort::from(port).unwrap().port(), port);
    }
}
