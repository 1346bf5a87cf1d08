//! What became of one job.

/// How a job ended, or why it did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobEnd {
    /// It waits when the simulation ends.
    Waiting,
    /// It runs when the simulation ends.
    Running,
    /// It ran to its end, whatever that was.
    Finished,
    /// It failed before its work was done: faults used its retries up.
    Ruined,
    /// No host, or not the whole cluster, could ever hold it.
    FitsNowhere,
    /// Its submission was refused, or it has not come yet.
    Refused,
}

impl JobEnd {
    /// Its word in tables.
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

/// Jobs by the GPUs that they ask for in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SizeBucket {
    /// None.
    None,
    /// One.
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
    /// All of them, ascending.
    pub const ALL: [Self; 6] = [
        Self::None,
        Self::One,
        Self::Few,
        Self::Host,
        Self::Hosts,
        Self::Many,
    ];

    /// The bucket of a number of GPUs.
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

    /// Its word in tables.
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

/// What became of one job. All times are in milliseconds after the first submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRecord {
    /// Position of its queue among the report's queues.
    pub queue: usize,
    /// GPUs in all.
    pub gpus: u32,
    /// When it was submitted.
    pub submitted_ms: u64,
    /// Running time that it needs; endless if none.
    pub duration_ms: Option<u64>,
    /// When it was first placed.
    pub first_placed_ms: Option<u64>,
    /// When it reached its end.
    pub finished_ms: Option<u64>,
    /// Running time that it has done and kept.
    pub done_ms: u64,
    /// Running time that was lost with stopped attempts.
    pub lost_ms: u64,
    /// Attempts that were preempted.
    pub preemptions: u32,
    /// Attempts that were moved to make room for others.
    pub moves: u32,
    /// Attempts that ended with their host or GPU.
    pub interruptions: u32,
    /// How it ended.
    pub end: JobEnd,
}

impl JobRecord {
    /// Milliseconds from submission to the first placement, if it was placed.
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

    /// Milliseconds of its completion time in which it did no work that was kept: all its waiting, and what it lost.
    #[must_use]
    pub fn overhead_ms(&self) -> Option<u64> {
        Some(self.completion_ms()?.saturating_sub(self.duration_ms?))
    }

    /// GPU-milliseconds of work that was done in vain.
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
