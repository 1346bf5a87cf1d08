//! Run records written by the training tasks: when each rank of each attempt ran and which step it had
//! reached. Reveals concurrent attempts and repeated steps whatever the scheduler believes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use muster_model::ids::{AttemptEpoch, JobId};
use serde::Serialize;

/// Longest gap between two lines of a live process; it writes every 20 ms, so after a longer gap it was
/// frozen.
const SILENCE_MS_MAX: u64 = 1_000;
/// Shortest gap between steps that counts as an interruption.
const STANDSTILL_MS_MIN: u64 = 500;

/// A record that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RunRecordsError {
    /// I/O error.
    #[error("reading {}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A line or a file name that the trainer does not write.
    #[error("{}: unexpected content {what:?}, not written by the trainer", path.display())]
    Odd {
        /// The file.
        path: PathBuf,
        /// The unexpected content.
        what: String,
    },
    /// No record exists.
    #[error("{} holds no record of job {job}", path.display())]
    None {
        /// The folder.
        path: PathBuf,
        /// The job.
        job: JobId,
    },
}

/// One line of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RecordLine {
    /// Wall-clock time in milliseconds.
    at_ms: u64,
    /// Steps done, once the ranks have met.
    step: Option<u64>,
}

/// The record of one rank of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RankRecord {
    rank: u32,
    marks: Vec<RecordLine>,
}

/// Two attempts whose processes ran at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ConcurrentAttempts {
    /// The older attempt.
    pub older: AttemptEpoch,
    /// The newer attempt.
    pub newer: AttemptEpoch,
    /// Longest time, in milliseconds, that a process of one ran concurrently with a process of the other.
    pub overlap_ms: u64,
}

/// Work that was done twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RepeatedWork {
    /// Repeated steps of the gang.
    pub steps: u64,
    /// Milliseconds that these steps took the first time.
    pub time_ms: u64,
}

/// All records of one job, by attempt.
#[derive(Clone, Debug, Default)]
pub struct RunRecords {
    attempts: BTreeMap<AttemptEpoch, Vec<RankRecord>>,
}

impl RunRecords {
    /// Reads the records of a job in `folder`.
    ///
    /// # Errors
    /// [`RunRecordsError`] if a record cannot be read or none exists.
    pub fn read(folder: &Path, job: JobId) -> Result<Self, RunRecordsError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| RunRecordsError::Io { path, source }
        };
        let mut lives = Self::default();
        for entry in fs::read_dir(folder).map_err(failed(folder))? {
            let path = entry.map_err(failed(folder))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let Some((of, epoch, rank)) = parse_name(&name) else {
                let what = name.into_owned();
                return Err(RunRecordsError::Odd { path, what });
            };
            if of == job {
                let text = fs::read_to_string(&path).map_err(failed(&path))?;
                let marks =
                    parse_marks(&text).map_err(|what| RunRecordsError::Odd { path, what })?;
                let attempt = lives.attempts.entry(epoch).or_default();
                attempt.push(RankRecord { rank, marks });
            }
        }
        if lives.attempts.is_empty() {
            let path = folder.to_owned();
            return Err(RunRecordsError::None { path, job });
        }
        Ok(lives)
    }

    /// Number of attempts that ran.
    #[must_use]
    pub fn attempts(&self) -> usize {
        self.attempts.len()
    }

    /// Every pair of attempts that ran concurrently, whichever their ranks: a gang has one attempt at a
    /// time.
    #[must_use]
    pub fn at_once(&self) -> Vec<ConcurrentAttempts> {
        let mut found = Vec::new();
        for (older, before) in &self.attempts {
            for (newer, after) in self.attempts.range(*older..).skip(1) {
                let overlap = before
                    .iter()
                    .flat_map(|one| after.iter().map(|other| overlap_ms(one, other)))
                    .max();
                if let Some(overlap_ms) = overlap.filter(|overlap| *overlap > 0) {
                    found.push(ConcurrentAttempts {
                        older: *older,
                        newer: *newer,
                        overlap_ms,
                    });
                }
            }
        }
        found
    }

    /// Steps that were repeated because they were lost with their attempt.
    #[must_use]
    pub fn repeated(&self) -> RepeatedWork {
        let leaders: Vec<&RankRecord> = self.leaders().map(|(_, life)| life).collect();
        let mut total = RepeatedWork::default();
        for (life, next) in leaders.iter().zip(leaders.iter().skip(1)) {
            let (Some(last), Some(first)) = (life.last_step(), next.first_step()) else {
                continue;
            };
            if last > first {
                total.steps += last - first;
                total.time_ms += life.reached_ms(last) - life.left_ms(first);
            }
        }
        total
    }

    /// Time from `strike_ms` until the gang makes steps again after its longest interruption since; `None`
    /// without an interruption. A new attempt counts as an interruption however short.
    #[must_use]
    pub fn back_after(&self, strike_ms: u64) -> Option<Duration> {
        let mut advances: Vec<(u64, AttemptEpoch)> = Vec::new();
        for (epoch, life) in self.leaders() {
            advances.extend(life.advances().map(|at_ms| (at_ms, epoch)));
        }
        let standstills = advances.windows(2).filter_map(|pair| {
            let [(began, before), (ended, after)] = pair else {
                return None;
            };
            let length_ms = ended.saturating_sub(*began);
            let is_standstill = before != after || length_ms >= STANDSTILL_MS_MIN;
            (is_standstill && *ended > strike_ms).then_some((length_ms, *ended))
        });
        let (_, ended) = standstills.max()?;
        Some(Duration::from_millis(ended - strike_ms))
    }

    /// Rank 0 of every attempt that made a step, in order: all ranks take their steps together.
    fn leaders(&self) -> impl Iterator<Item = (AttemptEpoch, &RankRecord)> {
        let attempts = self.attempts.iter();
        let ranks = attempts.flat_map(|(epoch, lives)| lives.iter().map(|life| (*epoch, life)));
        ranks.filter(|(_, life)| life.rank == 0 && life.first_step().is_some())
    }
}

impl RankRecord {
    fn first_step(&self) -> Option<u64> {
        self.marks.iter().find_map(|mark| mark.step)
    }

    fn last_step(&self) -> Option<u64> {
        self.marks.last().and_then(|mark| mark.step)
    }

    /// First time with at least `step` steps done.
    fn reached_ms(&self, step: u64) -> u64 {
        let reached = self.marks.iter().find(|mark| mark.step >= Some(step));
        reached.map_or(0, |mark| mark.at_ms)
    }

    /// Last time with at most `step` steps done.
    fn left_ms(&self, step: u64) -> u64 {
        let known = self.marks.iter().filter(|mark| mark.step.is_some());
        let before = known.take_while(|mark| mark.step <= Some(step)).last();
        before.map_or_else(|| self.reached_ms(step), |mark| mark.at_ms)
    }

    /// Times at which a new step was recorded.
    fn advances(&self) -> impl Iterator<Item = u64> + '_ {
        let pairs = self.marks.iter().zip(self.marks.iter().skip(1));
        pairs
            .filter(|(before, after)| before.step.is_some() && after.step > before.step)
            .map(|(_, after)| after.at_ms)
    }

    /// Intervals (first and last millisecond) in which the process ran; it did not run while frozen.
    fn stretches(&self) -> Vec<(u64, u64)> {
        let mut stretches: Vec<(u64, u64)> = Vec::new();
        for mark in &self.marks {
            match stretches.last_mut() {
                Some((_, last)) if mark.at_ms <= *last + SILENCE_MS_MAX => *last = mark.at_ms,
                _ => stretches.push((mark.at_ms, mark.at_ms)),
            }
        }
        stretches
    }
}

/// Milliseconds in which both ran.
fn overlap_ms(one: &RankRecord, other: &RankRecord) -> u64 {
    let others = other.stretches();
    let mut total = 0;
    for (from, to) in one.stretches() {
        for (other_from, other_to) in &others {
            let (first, last) = (from.max(*other_from), to.min(*other_to));
            total += (last + 1).saturating_sub(first);
        }
    }
    total
}

/// Parses job, attempt and rank from the file name of a record.
fn parse_name(name: &str) -> Option<(JobId, AttemptEpoch, u32)> {
    let mut parts = name.splitn(3, '-');
    let job = JobId(parts.next()?.parse().ok()?);
    let epoch = AttemptEpoch(parts.next()?.parse().ok()?);
    Some((job, epoch, parts.next()?.parse().ok()?))
}

/// Parses the complete lines of a record; the end of the process may have cut off the last one.
fn parse_marks(text: &str) -> Result<Vec<RecordLine>, String> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(parse_mark).collect()
}

fn parse_mark(line: &str) -> Result<RecordLine, String> {
    let odd = || line.to_owned();
    let (at, step) = line.split_once(' ').ok_or_else(odd)?;
    let step = match step {
        "-" => None,
        step => Some(step.parse().map_err(|_| odd())?),
    };
    let at_ms = at.parse().map_err(|_| odd())?;
    Ok(RecordLine { at_ms, step })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// Writes a record from `from_ms` on, with a line every 20 ms and the given steps.
    fn record(folder: &Path, name: &str, from_ms: u64, steps: impl Iterator<Item = u64>) {
        let mut text = format!("{from_ms} -\n");
        for (at, step) in (from_ms + 20..).step_by(20).zip(steps) {
            text.push_str(&format!("{at} {step}\n"));
        }
        text.push_str("123");
        fs::write(folder.join(name), text).unwrap();
    }

    #[test]
    fn steps_done_twice_are_counted_with_the_time_that_they_took() {
        let folder = tempfile::tempdir().unwrap();
        record(folder.path(), "3-7-0", 1_000, 0..=30);
        record(folder.path(), "3-9-0", 5_000, 25..=40);
        record(folder.path(), "4-9-0", 1_000, 0..=30);
        let lives = RunRecords::read(folder.path(), JobId(3)).unwrap();
        let expected = RepeatedWork {
            steps: 5,
            time_ms: 100,
        };
        assert_eq!((lives.attempts(), lives.repeated()), (2, expected));
        assert_eq!(lives.at_once(), []);
        // The last step was recorded at 1,620 ms, the next one at 5,040 ms.
        assert_eq!(lives.back_after(1_700), Some(Duration::from_millis(3_340)));
        assert_eq!(lives.back_after(5_100), None);
        record(folder.path(), "3-9-0", 1_640, 25..=40);
        let lives = RunRecords::read(folder.path(), JobId(3)).unwrap();
        assert_eq!(lives.back_after(1_600), Some(Duration::from_millis(80)));
    }

    #[test]
    fn attempts_that_live_at_once_are_found_whatever_their_ranks() {
        let folder = tempfile::tempdir().unwrap();
        record(folder.path(), "3-7-0", 1_000, 0..=5);
        record(folder.path(), "3-7-1", 1_000, 0..=30);
        record(folder.path(), "3-9-0", 1_500, 25..=40);
        let lives = RunRecords::read(folder.path(), JobId(3)).unwrap();
        let found = lives.at_once();
        assert_eq!((found.len(), found[0].overlap_ms), (1, 121), "{found:?}");
    }

    #[test]
    fn a_frozen_process_does_not_live_but_one_that_wakes_up_does() {
        let folder = tempfile::tempdir().unwrap();
        let frozen = "1000 -\n1020 1\n9000 1\n9040 1\n";
        fs::write(folder.path().join("3-7-0"), frozen).unwrap();
        record(folder.path(), "3-9-0", 5_000, 0..=10);
        let lives = RunRecords::read(folder.path(), JobId(3)).unwrap();
        assert_eq!(lives.at_once(), []);
        record(folder.path(), "3-9-0", 5_000, 0..=300);
        let lives = RunRecords::read(folder.path(), JobId(3)).unwrap();
        assert_eq!(lives.at_once()[0].overlap_ms, 41);
    }

    #[test]
    fn no_record_and_an_odd_one_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let read = || RunRecords::read(folder.path(), JobId(3)).unwrap_err();
        assert!(matches!(read(), RunRecordsError::None { .. }));
        fs::write(folder.path().join("3-7-0"), "now 5\n").unwrap();
        assert!(matches!(read(), RunRecordsError::Odd { .. }));
    }
}
