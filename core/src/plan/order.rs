//! In which order waiting jobs are considered: highest priority first, then the oldest, over all queues;
//! a job that has to wait holds up those behind it in its queue that compete for the same hosts.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ids::JobId;
use crate::state::{Lane, State, WaitingKey};

/// The jobs of one lane of one queue that were not considered yet.
struct Stream<'a> {
    queue: &'a Arc<str>,
    lane: &'a Lane,
    jobs: Box<dyn Iterator<Item = &'a WaitingKey> + 'a>,
    head: Option<WaitingKey>,
}

/// A merge of all lanes of all queues.
pub(super) struct Order<'a> {
    /// By queue and lane, ascending.
    streams: Vec<Stream<'a>>,
    /// The heads of those that are not held up, with their position in `streams`.
    heads: BTreeSet<(WaitingKey, usize)>,
}

/// A job whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) job: JobId,
    stream: usize,
}

impl<'a> Order<'a> {
    pub(super) fn new(state: &'a State) -> Self {
        let mut order = Self {
            streams: Vec::new(),
            heads: BTreeSet::new(),
        };
        for ((queue, lane), jobs) in &state.index.waiting {
            let mut jobs = Box::new(jobs.iter());
            let head = jobs.next().copied();
            order
                .heads
                .extend(head.map(|head| (head, order.streams.len())));
            order.streams.push(Stream {
                queue,
                lane,
                jobs,
                head,
            });
        }
        order
    }

    /// The next job.
    pub(super) fn next(&mut self) -> Option<Turn> {
        let ((_, job), position) = self.heads.pop_first()?;
        let stream = &mut self.streams[position];
        stream.head = stream.jobs.next().copied();
        self.heads.extend(stream.head.map(|head| (head, position)));
        Some(Turn {
            job,
            stream: position,
        })
    }

    /// Lets every job wait that comes after this one in its queue and competes with it: for its GPUs, and
    /// where it lacks CPUs or memory, for those too.
    pub(super) fn hold_behind(&mut self, turn: Turn, lacks_gpus: bool) {
        let lane = self.streams[turn.stream].lane;
        for position in self.streams_of_queue(turn.stream) {
            let other = self.streams[position].lane;
            if lane.meets(other) || (!lacks_gpus && *other == Lane::Cpu) {
                let head = self.streams[position].head.take();
                if let Some(head) = head {
                    self.heads.remove(&(head, position));
                }
            }
        }
    }

    /// Whether a lane's remaining jobs are held up (or there are none).
    pub(super) fn is_held(&self, queue: &str, lane: &Lane) -> bool {
        !self
            .streams
            .iter()
            .any(|stream| **stream.queue == *queue && stream.lane == lane && stream.head.is_some())
    }

    /// Positions of the streams of the queue that the given one belongs to.
    fn streams_of_queue(&self, stream: usize) -> std::ops::Range<usize> {
        let queue = self.streams[stream].queue;
        let start = self.streams.partition_point(|other| other.queue < queue);
        let end = self.streams.partition_point(|other| other.queue <= queue);
        start..end
    }
}
