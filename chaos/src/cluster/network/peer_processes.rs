//! Identification of the peer of a loopback connection: the kernel's tables map a port to a socket, and
//! `/proc` maps a socket to its process.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cluster::network::Endpoint;

/// The kernel's tables of TCP sockets in our network namespace. A program may use IPv4 through an IPv6
/// socket.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// Columns of such a table: the addresses of both ends, and the socket's inode number.
const NEAR_COLUMN: usize = 1;
const FAR_COLUMN: usize = 2;
const SOCKET_COLUMN: usize = 9;

/// Processes of the cluster's hosts.
#[derive(Debug, Default)]
pub(super) struct PeerProcesses {
    /// Host of each process.
    hosts: Mutex<BTreeMap<i32, usize>>,
}

impl PeerProcesses {
    /// Records that a process of a host was started.
    pub(super) fn started(&self, host: usize, pid: i32) {
        let mut hosts = self.lock();
        hosts.retain(|_, of| *of != host);
        hosts.insert(pid, host);
    }

    /// Owner of the far end of a connection. `None` if it cannot be determined now: changes while the
    /// tables are read may hide a row, and a process may connect before it is recorded.
    pub(super) fn at(&self, far: SocketAddr, near: SocketAddr) -> Option<Endpoint> {
        let socket = socket_between(far.port(), near.port())?;
        let hosts = self.lock().clone();
        let mut ends = { hosts.into_iter() }.map(|(pid, host)| (pid, Endpoint::Host(host)));
        let found = ends.find(|(pid, _)| has_open(*pid, &socket));
        let end = found.map(|(_, end)| end);
        // All users are in this process.
        let ours = i32::try_from(std::process::id()).ok();
        end.or_else(|| {
            ours.is_some_and(|pid| has_open(pid, &socket))
                .then_some(Endpoint::Users)
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i32, usize>> {
        // Every change leaves the map consistent, so a panic elsewhere leaves it usable.
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The socket between two ports, in the form of the links in `/proc/PID/fd`.
fn socket_between(from: u16, to: u16) -> Option<PathBuf> {
    let tables = TABLES.iter().filter_map(|it| fs::read_to_string(it).ok());
    let sockets = tables.filter_map(|table| socket_in(&table, from, to));
    let mut named = sockets.map(|socket| PathBuf::from(format!("socket:[{socket}]")));
    named.next()
}

/// Inode number of the socket between two ports in one of the kernel's tables.
fn socket_in(table: &str, from: u16, to: u16) -> Option<u64> {
    let port_of = |address: &str| u16::from_str_radix(address.rsplit(':').next()?, 16).ok();
    table.lines().find_map(|row| {
        let columns: Vec<&str> = row.split_whitespace().collect();
        let is_it =
            port_of(columns.get(NEAR_COLUMN)?)? == from && port_of(columns.get(FAR_COLUMN)?)? == to;
        let socket = columns.get(SOCKET_COLUMN)?.parse().ok()?;
        // A socket without an owner has inode number 0.
        (is_it && socket != 0).then_some(socket)
    })
}

/// Whether a process has a file or socket open; false once it has ended.
fn has_open(pid: i32, what: &Path) -> bool {
    let Ok(opened) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    let mut opened = opened.filter_map(Result::ok);
    opened.any(|entry| fs::read_link(entry.path()).is_ok_and(|it| it == what))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};
    use std::process::{Child, Command, Stdio};

    use super::*;

    #[test]
    fn a_socket_is_found_by_both_its_ports() {
        let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1CE8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0
   1: 0100007F:D431 0100007F:1CE8 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0 20 4 30 10 -1
   2: 0100007F:D432 0100007F:1CE8 06 00000000:00000000 03:00000F3B 00000000     0        0 0 3 0
   3: 0100007F:1CE8 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 13 1 0 20 4 30 10 -1
";
        assert_eq!(socket_in(table, 0xD431, 0x1CE8), Some(12));
        assert_eq!(socket_in(table, 0x1CE8, 0xD431), Some(13));
        assert_eq!(socket_in(table, 0xD432, 0x1CE8), None, "it has no owner");
        assert_eq!(socket_in(table, 0xD431, 0x1CE9), None);
    }

    /// Starts a process that connects to a port and reports it on standard output.
    fn connected_to(port: u16) -> Child {
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected && read -u 3");
        let mut child = Command::new("bash")
            .args(["-c", &script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = [0; 9];
        let stdout = child.stdout.as_mut().unwrap();
        stdout.read_exact(&mut output).unwrap();
        assert_eq!(output, *b"connected");
        child
    }

    #[test]
    fn callers_are_told_apart_by_their_processes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = listener.local_addr().unwrap();
        let callers = PeerProcesses::default();
        let mut children = Vec::new();
        let mut streams = Vec::new();
        for host in [3, 5] {
            let child = connected_to(near.port());
            callers.started(host, i32::try_from(child.id()).unwrap());
            let (stream, far) = listener.accept().unwrap();
            assert_eq!(callers.at(far, near), Some(Endpoint::Host(host)));
            children.push(child);
            streams.push((stream, far));
        }
        let ours = TcpStream::connect(near).unwrap();
        let far = ours.local_addr().unwrap();
        assert_eq!(callers.at(far, near), Some(Endpoint::Users));
        // Another process has replaced the first one.
        callers.started(3, i32::try_from(children[1].id()).unwrap());
        assert_eq!(callers.at(streams[0].1, near), None);
        assert_eq!(callers.at(streams[1].1, near), Some(Endpoint::Host(3)));
        for mut child in children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
