//! Record of one job.

/// Final state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobEnd {
    /// It waits when the simulation ends.
    Waiting,
    /// It runs when the simulation ends.
    Running,
    /// It ran to its end, with any result.
    Finished,
    /// It failed before its work was done: faults exhausted its retries.
    Ruined,
    /// No host, or not even the whole cluster, could hold it.
    FitsNowhere,
    /// Its submission was refused, or it has not arrived yet.
    Refused,
}

impl JobEnd {
    /// Name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Ruined => "ruined",
            Self::FitsNowhere => "fits_nowhere",
            Self::Refused => "refused",
        }
    }
}

/// Jobs by total GPUs requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SizeBucket {
    /// No GPUs.
    None,
    /// One GPU.
    One,
    /// Two to four.
    Few,
    /// Five to eight: up to an ordinary host.
    Host,
    /// Nine to 64.
    Hosts,
    /// More than 64.
    Many,
}

impl SizeBucket {
    /// All buckets, ascending.
    pub const ALL: [Self; 6] = [
        Self::None,
        Self::One,
        Self::Few,
        Self::Host,
        Self::Hosts,
        Self::Many,
    ];

    /// Bucket of a number of GPUs.
    #[must_use]
    pub const fn of(gpus: u32) -> Self {
        match gpus {
            0 => Self::None,
            1 => Self::One,
            2..=4 => Self::Few,
            5..=8 => Self::Host,
            9..=64 => Self::Hosts,
            _ => Self::Many,
        }
    }

    /// Name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "0",
            Self::One => "1",
            Self::Few => "2-4",
            Self::Host => "5-8",
            Self::Hosts => "9-64",
            Self::Many => ">64",
        }
    }
}

/// Record of one job. All times are in milliseconds after the first submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRecord {
    /// Index of its queue among the report's queues.
    pub queue: usize,
    /// Total GPUs.
    pub gpus: u32,
    /// Time of submission.
    pub submitted_ms: u64,
    /// Run time that it needs; endless if `None`.
    pub duration_ms: Option<u64>,
    /// Time of the first placement.
    pub first_placed_ms: Option<u64>,
    /// Time of its end.
    pub finished_ms: Option<u64>,
    /// Run time done and kept.
    pub done_ms: u64,
    /// Run time lost with stopped attempts.
    pub lost_ms: u64,
    /// Attempts that were preempted.
    pub preemptions: u32,
    /// Attempts that were moved to make room for others.
    pub moves: u32,
    /// Attempts that ended because their host or GPU failed.
    pub interruptions: u32,
    /// Final state.
    pub end: JobEnd,
}

impl JobRecord {
    /// Milliseconds from submission to the first placement, if any.
    #[must_use]
    pub fn delay_ms(&self) -> Option<u64> {
        Some(self.first_placed_ms?.saturating_sub(self.submitted_ms))
    }

    /// Milliseconds from submission to the end, if it ran to its end.
    #[must_use]
    pub fn completion_ms(&self) -> Option<u64> {
        let finished_ms = self.finished_ms.filter(|_| self.end == JobEnd::Finished)?;
        Some(finished_ms.saturating_sub(self.submitted_ms))
    }

    /// Milliseconds of its completion time without kept work: all waiting, and lost work.
    #[must_use]
    pub fn overhead_ms(&self) -> Option<u64> {
        Some(self.completion_ms()?.saturating_sub(self.duration_ms?))
    }

    /// GPU-milliseconds of work that was done and lost.
    #[must_use]
    pub fn lost_gpu_ms(&self) -> u128 {
        u128::from(self.lost_ms) * u128::from(self.gpus)
    }

    /// GPU-milliseconds of work that was done and kept.
    #[must_use]
    pub fn done_gpu_ms(&self) -> u128 {
        u128::from(self.done_ms) * u128::from(self.gpus)
    }
}
