//! Simultaneous send to one neighbour and receive from the other, so that full socket buffers in the ring
//! cannot deadlock; detects a neighbour that is gone or silent.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::clock::Deadline;

/// A neighbour in the ring.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Its rank, for error messages.
    pub(crate) rank: usize,
    stream: TcpStream,
}

impl Peer {
    /// Takes over a connection to `rank` and makes it non-blocking.
    pub(crate) fn new(rank: usize, stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true).context("set TCP_NODELAY")?;
        stream
            .set_nonblocking(true)
            .context("set a connection to non-blocking")?;
        Ok(Self { rank, stream })
    }

    /// Writes what the socket accepts at once; returns the number of bytes.
    fn write_some(&mut self, bytes: &[u8]) -> Result<usize> {
        match self.stream.write(bytes) {
            Ok(count) => Ok(count),
            Err(error) if is_retry(&error) => Ok(0),
            Err(error) => {
                Err(error).with_context(|| format!("rank {} is gone: send to it", self.rank))
            }
        }
    }

    /// Reads what is available; returns the number of bytes.
    fn read_some(&mut self, bytes: &mut [u8]) -> Result<usize> {
        match self.stream.read(bytes) {
            Ok(0) => bail!("rank {} is gone: it closed its connection", self.rank),
            Ok(count) => Ok(count),
            Err(error) if is_retry(&error) => Ok(0),
            Err(error) => {
                Err(error).with_context(|| format!("rank {} is gone: receive from it", self.rank))
            }
        }
    }
}

/// Sends all of `outgoing` to `next` while it fills all of `incoming` from `previous`; either may be empty.
/// Fails if a neighbour closes its connection, or if there is no progress for `timeout`.
pub(crate) fn exchange(
    next: &mut Peer,
    outgoing: &[u8],
    previous: &mut Peer,
    incoming: &mut [u8],
    timeout: Duration,
) -> Result<()> {
    let (mut sent, mut received) = (0, 0);
    let mut deadline = Deadline::after(timeout);
    while sent < outgoing.len() || received < incoming.len() {
        let mut moved = 0;
        if sent < outgoing.len() {
            moved += next.write_some(&outgoing[sent..])?;
            sent += moved;
        }
        if received < incoming.len() {
            let count = previous.read_some(&mut incoming[received..])?;
            received += count;
            moved += count;
        }
        if moved > 0 {
            deadline = Deadline::after(timeout);
            continue;
        }
        if deadline.has_passed() {
            let silent = if received < incoming.len() {
                previous.rank
            } else {
                next.rank
            };
            bail!("rank {silent} has been silent for {} s", timeout.as_secs());
        }
        let mut wanted = Vec::with_capacity(2);
        if sent < outgoing.len() {
            wanted.push(PollFd::new(&next.stream, PollFlags::OUT));
        }
        if received < incoming.len() {
            wanted.push(PollFd::new(&previous.stream, PollFlags::IN));
        }
        wait(&mut wanted, deadline)?;
    }
    Ok(())
}

/// Waits until `socket` has something to accept or to read. Returns false if `timeout` passes first.
pub(crate) fn is_readable_within(socket: &impl AsFd, timeout: Duration) -> Result<bool> {
    let mut wanted = [PollFd::new(socket, PollFlags::IN)];
    wait(&mut wanted, Deadline::after(timeout))?;
    Ok(!wanted[0].revents().is_empty())
}

/// Polls once, at most until `deadline`. A signal ends the wait early: the caller polls again.
fn wait(wanted: &mut [PollFd<'_>], deadline: Deadline) -> Result<()> {
    let remaining = Timespec::try_from(deadline.remaining()).context("convert a time-out")?;
    match poll(wanted, Some(&remaining)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("poll the ring's sockets"),
    }
}

fn is_retry(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
