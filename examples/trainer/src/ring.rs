//! Ring: every rank sends to the next and receives from the previous one.
//!
//! `all_reduce` is a reduce-scatter followed by an all-gather. Chunk `c` starts at rank `c`, and rank after
//! rank adds its own part: the order of additions depends on the chunk alone, never on the arrival order,
//! and one rank finishes each sum for all. So the result has the same bits on every rank and in every run.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::data_order::share_of;
use crate::duplex::{Peer, exchange};

/// Maximum number of bytes that rank 0 may broadcast.
const BROADCAST_BYTES_MAX: u64 = 1 << 26;
const F32_BYTES: usize = size_of::<f32>();

/// The two neighbours of a rank.
#[derive(Debug)]
pub(crate) struct Neighbours {
    /// The rank this one sends to.
    pub(crate) next: Peer,
    /// The rank this one receives from.
    pub(crate) previous: Peer,
}

/// One rank's place in the ring.
#[derive(Debug)]
pub(crate) struct Ring {
    rank: usize,
    world_size: usize,
    neighbours: Option<Neighbours>,
    timeout: Duration,
}

impl Ring {
    /// A ring of one rank, which needs no communication.
    pub(crate) fn alone() -> Self {
        Self {
            rank: 0,
            world_size: 1,
            neighbours: None,
            timeout: Duration::ZERO,
        }
    }

    /// The place of `rank` among `world_size`; a neighbour that is silent for `timeout` counts as dead.
    pub(crate) fn new(
        rank: usize,
        world_size: usize,
        neighbours: Neighbours,
        timeout: Duration,
    ) -> Self {
        Self {
            rank,
            world_size,
            neighbours: Some(neighbours),
            timeout,
        }
    }

    /// Replaces `values` by the sum over all ranks; every rank must pass the same number of values.
    pub(crate) fn all_reduce(&mut self, values: &mut [f32]) -> Result<()> {
        let (rank, world_size) = (self.rank, self.world_size);
        for turn in 0..world_size - 1 {
            let outgoing = self.chunk(values, rank + world_size - turn);
            let target = share_of(
                values.len(),
                (rank + world_size - turn - 1) % world_size,
                world_size,
            );
            let incoming = self.pass_on(&outgoing, target.len() * F32_BYTES)?;
            for (value, partial_sum) in values[target].iter_mut().zip(floats(&incoming)) {
                *value += partial_sum;
            }
        }
        for turn in 0..world_size - 1 {
            let outgoing = self.chunk(values, rank + 1 + world_size - turn);
            let target = share_of(
                values.len(),
                (rank + world_size - turn) % world_size,
                world_size,
            );
            let incoming = self.pass_on(&outgoing, target.len() * F32_BYTES)?;
            for (value, sum) in values[target].iter_mut().zip(floats(&incoming)) {
                *value = sum;
            }
        }
        Ok(())
    }

    /// Sends rank 0's bytes to every rank; the argument of other ranks is ignored.
    pub(crate) fn broadcast(&mut self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        if self.world_size == 1 {
            return Ok(bytes);
        }
        let mut length = (bytes.len() as u64).to_le_bytes();
        self.relay(&mut length)?;
        let length = u64::from_le_bytes(length);
        ensure!(
            length <= BROADCAST_BYTES_MAX,
            "rank 0 broadcasts {length} bytes, at most {BROADCAST_BYTES_MAX} are taken"
        );
        let mut bytes = bytes;
        bytes.resize(length as usize, 0);
        self.relay(&mut bytes)?;
        Ok(bytes)
    }

    /// Receives `bytes` from the previous rank (rank 0 has them) and forwards them (except the last rank).
    fn relay(&mut self, bytes: &mut [u8]) -> Result<()> {
        let (is_first, is_last) = (self.rank == 0, self.rank + 1 == self.world_size);
        let Some(Neighbours { next, previous }) = &mut self.neighbours else {
            return Ok(());
        };
        if !is_first {
            exchange(next, &[], previous, bytes, self.timeout)?;
        }
        if !is_last {
            exchange(next, bytes, previous, &mut [], self.timeout)?;
        }
        Ok(())
    }

    /// Sends `outgoing` to the next rank and returns `length` bytes of the previous one.
    fn pass_on(&mut self, outgoing: &[u8], length: usize) -> Result<Vec<u8>> {
        let mut incoming = vec![0; length];
        let Neighbours { next, previous } = self
            .neighbours
            .as_mut()
            .expect("a ring of one passes nothing on");
        exchange(next, outgoing, previous, &mut incoming, self.timeout)?;
        Ok(incoming)
    }

    /// The bytes of chunk `index` (modulo the ring's size).
    fn chunk(&self, values: &[f32], index: usize) -> Vec<u8> {
        let range = share_of(values.len(), index % self.world_size, self.world_size);
        values[range]
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    }
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes
        .chunks_exact(F32_BYTES)
        .map(|chunk| f32::from_le_bytes(chunk.try_into().expect("chunks_exact gives four bytes")))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// Rings of `world_size` ranks over loopback.
    fn rings(world_size: usize) -> Vec<Ring> {
        let listeners: Vec<TcpListener> = (0..world_size)
            .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
            .collect();
        let nexts: Vec<TcpStream> = (0..world_size)
            .map(|rank| {
                let next = &listeners[(rank + 1) % world_size];
                TcpStream::connect(next.local_addr().unwrap()).unwrap()
            })
            .collect();
        nexts
            .into_iter()
            .zip(listeners)
            .enumerate()
            .map(|(rank, (next, listener))| {
                let previous = listener.accept().unwrap().0;
                let neighbours = Neighbours {
                    next: Peer::new((rank + 1) % world_size, next).unwrap(),
                    previous: Peer::new((rank + world_size - 1) % world_size, previous).unwrap(),
                };
                Ring::new(rank, world_size, neighbours, TIMEOUT)
            })
            .collect()
    }

    /// Numbers whose sum depends on the order of addition.
    fn values_of(rank: usize, length: usize) -> Vec<f32> {
        (0..length)
            .map(|index| 1.0e-3 / (1 + rank * 7 + index * 3) as f32 + 1.0e4 * rank as f32)
            .collect()
    }

    /// Runs every rank in its own thread; `order` is the order in which they start.
    fn reduce(world_size: usize, length: usize, order: impl Fn(usize) -> usize) -> Vec<Vec<u32>> {
        let mut places: Vec<Option<Ring>> = rings(world_size).into_iter().map(Some).collect();
        let mut threads: Vec<_> = (0..world_size)
            .map(order)
            .map(|rank| {
                let mut ring = places[rank].take().unwrap();
                let handle = thread::spawn(move || {
                    let mut values = values_of(rank, length);
                    ring.all_reduce(&mut values).unwrap();
                    values.iter().map(|value| value.to_bits()).collect()
                });
                (rank, handle)
            })
            .collect();
        threads.sort_by_key(|(rank, _)| *rank);
        threads
            .into_iter()
            .map(|(_, handle)| handle.join().unwrap())
            .collect()
    }

    /// The sum in the order that the ring guarantees: chunk c from rank c onwards.
    fn expected(world_size: usize, length: usize) -> Vec<u32> {
        let mut sums = vec![0; length];
        for chunk in 0..world_size {
            for index in share_of(length, chunk, world_size) {
                let parts = (0..world_size)
                    .map(|turn| values_of((chunk + turn) % world_size, length)[index]);
                sums[index] = parts.reduce(|sum, part| part + sum).unwrap().to_bits();
            }
        }
        sums
    }

    #[test]
    fn every_rank_gets_the_same_bits_in_the_promised_order() {
        for (world_size, length) in [(2, 10), (3, 100), (4, 3_610), (5, 3)] {
            let wanted = expected(world_size, length);
            for rotation in 0..world_size {
                for sums in reduce(world_size, length, |place| (place + rotation) % world_size) {
                    assert_eq!(sums, wanted, "{world_size} ranks, {length} values");
                }
            }
        }
    }

    #[test]
    fn messages_larger_than_every_socket_buffer_do_not_deadlock_the_ring() {
        let length = 4 << 20;
        let sums = reduce(2, length, |place| place);
        assert_eq!(sums[0], sums[1]);
    }

    #[test]
    fn a_broadcast_reaches_every_rank() {
        let threads: Vec<_> = rings(4)
            .into_iter()
            .map(|mut ring| {
                thread::spawn(move || {
                    let own = if ring.rank == 0 {
                        b"state".to_vec()
                    } else {
                        Vec::new()
                    };
                    ring.broadcast(own).unwrap()
                })
            })
            .collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), b"state");
        }
    }

    #[test]
    fn a_dead_neighbour_is_named() {
        let mut rings = rings(3);
        drop(rings.remove(1));
        let error = rings[1].all_reduce(&mut [1.0, 2.0, 3.0]).unwrap_err();
        assert!(error.to_string().contains("rank 1 is gone"), "{error:#}");
    }

    #[test]
    fn a_silent_neighbour_is_named() {
        let mut rings = rings(2);
        rings[0].timeout = Duration::from_millis(50);
        let error = rings[0].all_reduce(&mut [1.0, 2.0]).unwrap_err();
        assert!(
            error.to_string().contains("rank 1 has been silent"),
            "{error:#}"
        );
    }
}
