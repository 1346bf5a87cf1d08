//! Live timeline: one line per event, readable while it scrolls.

use std::io::Write;

use anstyle::{AnsiColor, Style};
use muster_model::command::{BlockTarget, GpuHealth, HostHealth};
use muster_model::event::{Event, EventKind};
use muster_model::health::{Component, Phase};
use muster_model::ids::JobId;
use tokio::time::Instant;

/// Subject of a line: decides its colour and sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// An action of the demo itself.
    Stage,
    /// A fault.
    Fault,
    /// A recovery of the cluster.
    Recovery,
    /// An ordinary report of the cluster.
    Cluster,
    /// The training job.
    Training,
}

impl LineKind {
    const fn style(self) -> Style {
        let style = Style::new();
        match self {
            Self::Stage => style.bold(),
            Self::Fault => color(style, AnsiColor::Red).bold(),
            Self::Recovery => color(style, AnsiColor::Green),
            Self::Cluster => style.dimmed(),
            Self::Training => color(style, AnsiColor::Cyan),
        }
    }

    const fn sign(self) -> char {
        match self {
            Self::Stage => '>',
            Self::Fault => '!',
            Self::Recovery => '+',
            Self::Cluster => ' ',
            Self::Training => '*',
        }
    }
}

const fn color(style: Style, color: AnsiColor) -> Style {
    style.fg_color(Some(anstyle::Color::Ansi(color)))
}

/// Output stream of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output: the timeline is the requested result.
    Stdout,
    /// Standard error: the timeline accompanies the requested result.
    Stderr,
}

/// Prints lines with the seconds since the start.
#[derive(Clone, Copy, Debug)]
pub struct Timeline {
    began: Instant,
    output: Output,
}

impl Timeline {
    /// Starts the clock.
    #[must_use]
    pub fn begin(output: Output) -> Self {
        Self {
            began: Instant::now(),
            output,
        }
    }

    /// Prints one line, coloured only on a terminal.
    pub fn print_line(&self, kind: LineKind, text: &str) {
        let style = kind.style();
        self.write(&format!(
            "{:7.2}s {style}{} {text}{style:#}",
            self.began.elapsed().as_secs_f64(),
            kind.sign(),
        ));
    }

    fn write(&self, line: &str) {
        // A closed output (`muster demo | head`) must not interrupt the demo.
        let _unread = match self.output {
            Output::Stdout => writeln!(anstream::stdout().lock(), "{line}"),
            Output::Stderr => writeln!(anstream::stderr().lock(), "{line}"),
        };
    }

    /// Prints a text unchanged.
    pub fn print(&self, text: &str) {
        self.write(text);
    }

    /// Prints an event if it is of interest to operators.
    pub fn print_event(&self, event: &Event, training: Option<JobId>) {
        if let Some((kind, text)) = describe(&event.kind, training) {
            self.print_line(kind, &text);
        }
    }
}

/// Describes the change if a rule takes a component out of placement or back in; `None` if placement is
/// unchanged.
fn describe_placement(place: &str, from: Phase, to: Phase, rule: &str) -> Option<String> {
    match (from.accepts_work(), to.accepts_work()) {
        (true, false) => Some(format!("{place} is out of placement (rule {rule})")),
        (false, true) => Some(format!("{place} accepts work again")),
        _ => None,
    }
}

/// Describes an event of interest to operators.
fn describe(kind: &EventKind, training: Option<JobId>) -> Option<(LineKind, String)> {
    let line = match kind {
        EventKind::LeadershipStarted { replica, epoch } => (
            LineKind::Recovery,
            format!("replica {replica} leads, leadership epoch {epoch}"),
        ),
        EventKind::HostHealthChanged { name, health, .. } => match health {
            HostHealth::Up => (LineKind::Recovery, format!("{name} is back")),
            HostHealth::Suspect => (
                LineKind::Cluster,
                format!("{name} is silent: nothing new is placed there"),
            ),
            HostHealth::Lost => (
                LineKind::Recovery,
                format!("{name} is lost: its lease has expired"),
            ),
        },
        EventKind::GpuHealthChanged {
            gpu,
            host_name,
            health,
            ..
        } => match health {
            GpuHealth::Healthy => (
                LineKind::Recovery,
                format!("{gpu} on {host_name} is healthy again"),
            ),
            GpuHealth::Faulted { signal, .. } => (
                LineKind::Recovery,
                format!("{gpu} on {host_name} is out of placement ({signal})"),
            ),
        },
        EventKind::HealthChanged {
            component,
            host_name,
            from,
            to,
            rule,
            ..
        } => {
            let place = match component {
                Component::Host(_) => host_name.clone(),
                part => format!("{part} on {host_name}"),
            };
            return describe_placement(&place, *from, *to, rule)
                .map(|text| (LineKind::Recovery, text));
        }
        EventKind::Blocked { target, block } => (
            LineKind::Recovery,
            format!(
                "{} is blocked by {}: {}",
                target_name(target),
                block.author,
                block.reason
            ),
        ),
        EventKind::Unblocked { target, author } => (
            LineKind::Recovery,
            format!("{} is unblocked by {author}", target_name(target)),
        ),
        other if training.is_some() && other.job() == training => {
            return describe_training(other).map(|text| (LineKind::Training, text));
        }
        _ => return None,
    };
    Some(line)
}

fn describe_training(kind: &EventKind) -> Option<String> {
    Some(match kind {
        EventKind::AttemptPlaced {
            number,
            hosts,
            gpus,
            ..
        } => {
            format!(
                "training: attempt {number} gets {gpus} GPUs on {} hosts",
                hosts.len()
            )
        }
        EventKind::AttemptRunning { .. } => "training: all ranks run".to_owned(),
        EventKind::AttemptStopping { cause, .. } => format!("training: stopping, {cause}"),
        EventKind::AttemptEnded { detail, .. } => format!("training: attempt ended: {detail}"),
        EventKind::CheckpointCommitted { step, .. } => {
            format!("training: checkpoint of step {step} committed")
        }
        EventKind::JobFinished { phase, .. } => format!("training: {phase:?}").to_lowercase(),
        _ => return None,
    })
}

fn target_name(target: &BlockTarget) -> String {
    match target {
        BlockTarget::Host(name) => name.clone(),
        BlockTarget::Gpu(uuid) => uuid.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use muster_model::ids::{LeadershipEpoch, ReplicaId};

    use super::*;

    #[test]
    fn other_jobs_do_not_flood_the_timeline() {
        let finished = EventKind::JobPruned { job: JobId(3) };
        assert_eq!(describe(&finished, Some(JobId(4))), None);
    }

    #[test]
    fn a_new_leader_is_worth_a_line() {
        let began = EventKind::LeadershipStarted {
            replica: ReplicaId(2),
            epoch: LeadershipEpoch(9),
        };
        let (kind, text) = describe(&began, None).unwrap_or((LineKind::Stage, String::new()));
        assert_eq!(
            (kind, text.as_str()),
            (LineKind::Recovery, "replica 2 leads, leadership epoch 9")
        );
    }
}
