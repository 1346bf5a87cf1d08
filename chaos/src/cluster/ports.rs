//! Free ports on loopback.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// `count` addresses on loopback that were free a moment ago.
///
/// All are held until the last is drawn, so that they differ. Somebody else may take one before its
/// process binds it; that process then says so and ends.
///
/// # Errors
/// If the kernel has no free port.
pub fn free_addresses(count: usize) -> io::Result<Vec<SocketAddr>> {
    let held = (0..count)
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .collect::<io::Result<Vec<_>>>()?;
    held.iter().map(TcpListener::local_addr).collect()
}
