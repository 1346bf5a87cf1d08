//! Timeline of faults and repairs of simulated GPUs: a CSV file with `at_ms,gpu,signal`.

use std::path::{Path, PathBuf};

use muster_model::command::GpuHealth;
use muster_model::limits::GPUS_PER_HOST_MAX;

use crate::gpu::faulted;
use crate::limits::TIMELINE_LINES_MAX;

/// The signal that sets the used memory of a GPU; its detail is in MiB.
const MEMORY: &str = "memory";
/// Prefix of the signal that sets a reading: `metric:RULE.METRIC`, or `metric:NAME` for a gauge; its detail
/// is the value.
const METRIC: &str = "metric:";
/// The signal that makes a GPU healthy again.
const HEAL: &str = "heal";

/// Events in time order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline(Vec<TimelineEvent>);

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TimelineEvent {
    /// Time since the backend was opened, in milliseconds.
    pub(super) at_ms: u64,
    /// Index on the host.
    pub(super) gpu: usize,
    /// What the GPU reports from then on.
    pub(super) effect: Effect,
}

/// Effects of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Health(GpuHealth),
    /// Used memory.
    MemoryMib(u64),
    /// Value of a reading.
    Metric(String, i64),
}

/// Reasons why a timeline cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    /// The file cannot be read.
    #[error("reading GPU timeline {} failed", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A line breaks a rule.
    #[error("line {line} of the GPU timeline: {rule}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The broken rule.
        rule: String,
    },
}

impl Timeline {
    /// Reads a file: `at_ms,gpu,signal[,detail]` per line; `#` starts a comment; the signal `heal` repairs,
    /// `memory` sets the used memory in MiB from then on, and `metric:RULE.METRIC` a reading of a rule.
    ///
    /// # Errors
    /// See [`TimelineError`].
    pub fn read(path: &Path) -> Result<Self, TimelineError> {
        let text = std::fs::read_to_string(path).map_err(|source| TimelineError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text)
    }

    /// Parses a text of that form.
    ///
    /// # Errors
    /// [`TimelineError::Line`].
    pub fn parse(text: &str) -> Result<Self, TimelineError> {
        let mut events = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() || line.starts_with("at_ms") {
                continue;
            }
            let event = parse_line(line).and_then(|event| {
                if events.len() < TIMELINE_LINES_MAX {
                    Ok(event)
                } else {
                    Err(format!(
                        "more than {TIMELINE_LINES_MAX} events (TIMELINE_LINES_MAX)"
                    ))
                }
            });
            events.push(event.map_err(|rule| TimelineError::Line {
                line: index + 1,
                rule,
            })?);
        }
        events.sort_by_key(|event| event.at_ms);
        Ok(Self(events))
    }

    /// Takes the events that are due.
    pub(super) fn due(&mut self, elapsed_ms: u64) -> Vec<TimelineEvent> {
        let count = self.0.partition_point(|event| event.at_ms <= elapsed_ms);
        self.0.drain(..count).collect()
    }

    /// Time of the next event.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.0.first().map(|event| event.at_ms)
    }
}

fn parse_line(line: &str) -> Result<TimelineEvent, String> {
    let mut fields = line.splitn(4, ',').map(str::trim);
    let mut field = |name: &str| {
        fields
            .next()
            .filter(|text| !text.is_empty())
            .ok_or_else(|| format!("`{name}` is missing (at_ms,gpu,signal[,detail])"))
    };
    let at_ms = field("at_ms")?
        .parse()
        .map_err(|_| "`at_ms` is not a number of milliseconds".to_owned())?;
    let gpu: usize = field("gpu")?
        .parse()
        .map_err(|_| "`gpu` is not an index".to_owned())?;
    if gpu >= GPUS_PER_HOST_MAX {
        return Err(format!(
            "`gpu` is not below {GPUS_PER_HOST_MAX} (GPUS_PER_HOST_MAX)"
        ));
    }
    let signal = field("signal")?;
    let detail = field("detail").unwrap_or("from the timeline");
    if let Some(name) = signal.strip_prefix(METRIC) {
        let is_letter = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'_' | b'.');
        let value = detail.parse();
        return match value {
            Ok(value) if !name.is_empty() && name.bytes().all(is_letter) => Ok(TimelineEvent {
                at_ms,
                gpu,
                effect: Effect::Metric(name.to_owned(), value),
            }),
            _ => Err("`metric:RULE.METRIC` needs a name and a whole number".to_owned()),
        };
    }
    let shows = match signal {
        HEAL => Effect::Health(GpuHealth::Healthy),
        MEMORY => Effect::MemoryMib(
            detail
                .parse()
                .map_err(|_| "`memory` needs a number of MiB".to_owned())?,
        ),
        _ => Effect::Health(faulted(signal, detail)),
    };
    Ok(TimelineEvent {
        at_ms,
        gpu,
        effect: shows,
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[test]
    fn events_come_when_they_are_due() {
        let text = "at_ms,gpu,signal\n500,3,xid-79,fallen off the bus\n# pause\n\
                    100, 1, ecc-uncorrectable\n900,3,heal\n";
        let mut timeline = Timeline::parse(text).unwrap();
        assert_eq!(timeline.next_ms(), Some(100));
        assert_eq!(timeline.due(99), vec![]);
        let due = timeline.due(600);
        assert_eq!(
            due.iter().map(|event| event.gpu).collect::<Vec<_>>(),
            vec![1, 3]
        );
        let fault = faulted("xid-79", "fallen off the bus");
        assert_eq!(due[1].effect, Effect::Health(fault));
        let healed = Effect::Health(GpuHealth::Healthy);
        assert_eq!(timeline.due(5_000)[0].effect, healed);
        assert_eq!(timeline.next_ms(), None);
    }

    #[test]
    fn a_bad_line_is_named() {
        for (text, line) in [
            ("5", 1),
            ("1,0,heal\nx,0,heal", 2),
            ("1,128,heal", 1),
            ("1,0,", 1),
            ("1,0,memory,much", 1),
            ("1,0,metric:temp_core.over_max_c,hot", 1),
            ("1,0,metric:,1", 1),
        ] {
            let error = Timeline::parse(text).unwrap_err();
            assert!(
                error.to_string().starts_with(&format!("line {line} ")),
                "{error}"
            );
        }
    }
}
