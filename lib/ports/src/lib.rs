//! Free ports on loopback.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};

/// Candidate ports: below those of gangs (`MASTER_PORT`) and below the kernel's range for outgoing
/// connections (from 32768 on), either of which could take the port of a process that is briefly down.
pub const PORTS: Range<u16> = 10_000..20_000;
/// Maximum attempts to find a free port.
const TRIES_MAX: usize = 1_000;

/// Addresses on loopback that no other [`ReservedAddresses`] of this network namespace contains while this
/// one exists, also when nothing listens on them for a while.
#[derive(Debug)]
pub struct ReservedAddresses {
    addresses: Vec<SocketAddr>,
    /// Abstract sockets, one a port: the kernel closes them with the process.
    _reservations: Vec<UnixListener>,
}

impl ReservedAddresses {
    /// Reserves `count` addresses that were free a moment ago.
    ///
    /// A program that knows nothing of reservations may take one before it is bound; the process that binds
    /// it then reports an error and ends.
    ///
    /// # Errors
    /// If no free port is found because too many are taken.
    pub fn draw(count: usize) -> io::Result<Self> {
        let mut drawn = BTreeSet::new();
        let mut addresses = Vec::new();
        let mut reservations = Vec::new();
        let mut refusal = io::Error::from(io::ErrorKind::AddrInUse);
        for _ in 0..TRIES_MAX + count {
            if addresses.len() == count {
                break;
            }
            let port = random_port();
            if !drawn.insert(port) {
                continue;
            }
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            match reserve(address) {
                Ok(reservation) => {
                    addresses.push(address);
                    reservations.push(reservation);
                }
                Err(error) => refusal = error,
            }
        }
        if addresses.len() < count {
            return Err(refusal);
        }
        Ok(Self {
            addresses,
            _reservations: reservations,
        })
    }

    /// The addresses, all different.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

/// Reserves an address without a listener.
fn reserve(address: SocketAddr) -> io::Result<UnixListener> {
    let name = format!("muster-port-{}", address.port());
    let reservation = UnixListener::bind_addr(&UnixAddress::from_abstract_name(name)?)?;
    TcpListener::bind(address)?;
    Ok(reservation)
}

/// A random port of [`PORTS`]: two clusters that start at the same time must not try the same ones.
fn random_port() -> u16 {
    let random = RandomState::new().build_hasher().finish();
    let count = u64::from(PORTS.end - PORTS.start);
    PORTS.start + u16::try_from(random % count).unwrap_or(0)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_reserved_while_nothing_listens_on_it() {
        let reserved = ReservedAddresses::draw(1).unwrap();
        let address = reserved.addresses()[0];
        let refused = reserve(address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(reserved);
        reserve(address).unwrap();
    }

    #[test]
    fn reserved_addresses_are_distinct() {
        let reserved = ReservedAddresses::draw(20).unwrap();
        let different: BTreeSet<_> = reserved.addresses().iter().collect();
        assert_eq!(different.len(), 20);
    }
}
