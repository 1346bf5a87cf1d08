//! Free ports on loopback.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Candidate ports: below the kernel's range for outgoing connections (from 32768 on), where a connection
/// could take the port of a process that is briefly down.
const PORTS: std::ops::Range<u16> = 12_000..32_000;
/// Maximum attempts to find a free port.
const TRIES_MAX: usize = 1_000;

/// Returns `count` addresses on loopback that were free a moment ago.
///
/// All are held until the last is drawn, so that they differ. Another process may take one before it is
/// bound; the process that binds it then reports an error and ends.
///
/// # Errors
/// If no free port is found because too many are taken.
pub fn free_addresses(count: usize) -> io::Result<Vec<SocketAddr>> {
    let mut drawn = BTreeSet::new();
    let mut held = Vec::new();
    let mut refusal = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..TRIES_MAX + count {
        if held.len() == count {
            break;
        }
        let port = random_port();
        if !drawn.insert(port) {
            continue;
        }
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(listener) => held.push(listener),
            Err(error) => refusal = error,
        }
    }
    if held.len() < count {
        return Err(refusal);
    }
    held.iter().map(TcpListener::local_addr).collect()
}

/// A random port of [`PORTS`]: two clusters that start at the same time must not try the same ones.
fn random_port() -> u16 {
    let random = RandomState::new().build_hasher().finish();
    let count = u64::from(PORTS.end - PORTS.start);
    PORTS.start + u16::try_from(random % count).unwrap_or(0)
}
