//! Free ports on loopback.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Ports that are drawn from: below those that the kernel gives to outgoing connections (from 32768 on), or
/// one of these would take the port of a process that is down for a moment.
const PORTS: std::ops::Range<u16> = 12_000..32_000;
/// Ports tried for one that is free.
const TRIES_MAX: usize = 1_000;

/// `count` addresses on loopback that were free a moment ago.
///
/// All are held until the last is drawn, so that they differ. Somebody else may take one before its
/// process binds it; that process then says so and ends.
///
/// # Errors
/// If so many ports are taken that none is found.
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

/// Any of [`PORTS`]: two clusters that start at the same time must not try the same ones.
fn random_port() -> u16 {
    let random = RandomState::new().build_hasher().finish();
    let count = u64::from(PORTS.end - PORTS.start);
    PORTS.start + u16::try_from(random % count).unwrap_or(0)
}
