//! Totals over the whole run: GPU-milliseconds by use.

use std::ops::Range;

use crate::measure::{HeadRequest, Hosts};

/// State of the cluster between two instants.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moment {
    /// GPUs held by attempts.
    pub(crate) held: u64,
    /// GPUs that can be allocated.
    pub(crate) free: u64,
    /// Free GPUs that cannot take a whole-host request.
    pub(crate) stranded_for_whole_host: u64,
    /// While a job waits for room: free GPUs that cannot take part in its request.
    pub(crate) stranded_for_head: Option<u64>,
    /// Whether any job waits.
    pub(crate) is_waiting: bool,
}

impl Moment {
    pub(crate) fn of(
        hosts: &Hosts,
        held: u64,
        head: Option<&HeadRequest>,
        is_waiting: bool,
    ) -> Self {
        Self {
            held,
            free: hosts.free(),
            stranded_for_whole_host: hosts.stranded_for_whole_host(),
            stranded_for_head: head.map(|head| hosts.stranded_for(head)),
            is_waiting,
        }
    }
}

/// GPU-milliseconds of the whole run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Integrals {
    /// Held by attempts.
    pub(crate) held: u128,
    /// Held until the last submission.
    pub(crate) held_until_last_submission: u128,
    /// Held while jobs wait.
    pub(crate) held_while_waiting: u128,
    /// Milliseconds during which jobs wait.
    pub(crate) waiting_ms: u64,
    /// Free.
    pub(crate) free: u128,
    /// Free and unusable for a whole-host request.
    pub(crate) stranded_for_whole_host: u128,
    /// Free while a job waits for room.
    pub(crate) free_beside_head: u128,
    /// Free while a job waits for room and unusable for its request.
    pub(crate) stranded_for_head: u128,
}

impl Integrals {
    /// Adds a span in which the cluster was in this state; the last submission is at `last_submission_ms`.
    pub(crate) fn add(&mut self, span_ms: Range<u64>, moment: Moment, last_submission_ms: u64) {
        let length_ms = span_ms.end - span_ms.start;
        let over = |gpus: u64| u128::from(gpus) * u128::from(length_ms);
        self.held += over(moment.held);
        let counted_end_ms = span_ms.end.min(last_submission_ms);
        let counted_ms = counted_end_ms.saturating_sub(span_ms.start);
        self.held_until_last_submission += u128::from(moment.held) * u128::from(counted_ms);
        if moment.is_waiting {
            self.held_while_waiting += over(moment.held);
            self.waiting_ms += length_ms;
        }
        self.free += over(moment.free);
        self.stranded_for_whole_host += over(moment.stranded_for_whole_host);
        if let Some(stranded) = moment.stranded_for_head {
            self.free_beside_head += over(moment.free);
            self.stranded_for_head += over(stranded);
        }
    }
}
