//! Interactive stepping through a record, one command at a time.

use std::fmt::Write as _;

use muster_model::ids::Revision;

use crate::sim::record::{Record, Scene, SceneKind, describe, difference};

/// Help text.
const HELP: &str = "\
n [COUNT]  next scene, or COUNT ahead    f  the next fault       s [REVISION]  state here, or at REVISION
p [COUNT]  previous, or COUNT back       v  the first violation  d [FROM TO]   change by the last command, or between
g SECONDS  first scene from SECONDS on   q  quit                 h             this help
";

/// Position in a record, moved by commands.
#[derive(Debug)]
pub struct Stepper<'a> {
    record: &'a Record,
    scenes: Vec<&'a Scene>,
    at: usize,
}

impl<'a> Stepper<'a> {
    /// Starts before the first of these scenes of a record.
    #[must_use]
    pub const fn new(record: &'a Record, scenes: Vec<&'a Scene>) -> Self {
        Self {
            record,
            scenes,
            at: 0,
        }
    }

    /// Executes a command line and returns its output; `None` to quit.
    pub fn execute(&mut self, line: &str) -> Option<String> {
        let mut words = line.split_whitespace();
        let command = words.next().unwrap_or("n");
        let numbers: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
        let Some(numbers) = numbers else {
            return Some(format!("numbers come after a command\n{HELP}"));
        };
        let first = numbers.first().copied();
        let count = first.and_then(|it| usize::try_from(it).ok()).unwrap_or(1);
        Some(match command {
            "q" => return None,
            "n" => self.forward(count),
            "p" => self.back(count),
            "f" => self.seek(|scene| scene.kind == SceneKind::Fault),
            "v" => {
                self.at = 0;
                self.seek(|scene| scene.kind == SceneKind::Violation)
            }
            "g" => {
                self.at = 0;
                let from_ms = first.unwrap_or(0) * 1_000;
                self.seek(|scene| scene.at_ms >= from_ms)
            }
            "s" => self.state(first.map(Revision)),
            "d" => self.difference(&numbers),
            _ => HELP.to_owned(),
        })
    }

    fn forward(&mut self, count: usize) -> String {
        let end = self.at.saturating_add(count).min(self.scenes.len());
        let seen = &self.scenes[self.at..end];
        self.at = end;
        if seen.is_empty() {
            return "that was the last scene\n".to_owned();
        }
        text_of(seen)
    }

    fn back(&mut self, count: usize) -> String {
        // The scene shown last lies before the current position.
        let Some(seen) = self.at.checked_sub(1).filter(|seen| *seen > 0) else {
            return "that was the first scene\n".to_owned();
        };
        let to = seen.saturating_sub(count);
        self.at = to + 1;
        text_of(&self.scenes[to..=to])
    }

    fn seek(&mut self, is_wanted: impl Fn(&Scene) -> bool) -> String {
        let found = self.scenes[self.at..].iter().position(|it| is_wanted(it));
        let Some(found) = found else {
            return "no such scene from here on\n".to_owned();
        };
        self.at += found;
        self.forward(1)
    }

    /// The newest revision known at the current position.
    fn revision(&self) -> Revision {
        let seen = self.scenes[..self.at].iter().rev();
        let made = seen.filter(|it| matches!(it.kind, SceneKind::Command | SceneKind::Event));
        made.filter_map(|it| it.revision)
            .next()
            .unwrap_or(Revision(0))
    }

    fn state(&self, revision: Option<Revision>) -> String {
        let revision = revision.unwrap_or_else(|| self.revision());
        let state = self.record.state(revision);
        state.map_or_else(|| unknown(revision), describe)
    }

    fn difference(&self, numbers: &[u64]) -> String {
        let (from, to) = match numbers {
            [from, to, ..] => (Revision(*from), Revision(*to)),
            _ => {
                let to = self.revision();
                (Revision(to.get().saturating_sub(1)), to)
            }
        };
        match (self.record.state_upto(from), self.record.state(to)) {
            (Some(before), Some(after)) => difference(before, after),
            (None, _) => unknown(from),
            _ => unknown(to),
        }
    }
}

fn unknown(revision: Revision) -> String {
    format!("no state of revision {revision} was recorded\n")
}

fn text_of(scenes: &[&Scene]) -> String {
    scenes.iter().fold(String::new(), |mut text, scene| {
        // Writing to a string cannot fail.
        let _infallible = writeln!(text, "{scene}");
        text
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use muster_harness::{Cluster, single};

    use super::*;
    use crate::sim::record::Filter;

    fn record() -> Record {
        let mut cluster = Cluster::with_hosts(1, 2);
        let mut record = Record::default();
        record.keep(&cluster.state);
        record.push(1_000, Scene::new(SceneKind::Fault, "replica killed"));
        cluster.submit(single("first", 1, 1));
        record.keep(&cluster.state);
        let command = Scene::new(SceneKind::Command, "SubmitJob").at(cluster.state.revision);
        record.push(2_000, command);
        record.push(3_000, Scene::new(SceneKind::Fault, "replica restarted"));
        record.push(4_000, Scene::new(SceneKind::Violation, "two at once"));
        record
    }

    #[test]
    fn the_stepper_shows_the_requested_scenes() {
        let record = record();
        let mut stepper = Stepper::new(&record, Filter::default().select(&record));
        let mut shows = |line: &str, what: &str| {
            let output = stepper.execute(line).unwrap();
            assert!(output.contains(what), "{line}: {output}");
        };
        shows("n", "replica killed");
        shows("n", "SubmitJob");
        shows("d", "+ job");
        shows("s", "leadership");
        shows("p", "replica killed");
        shows("p", "that was the first");
        shows("f", "replica restarted");
        shows("f", "no such scene");
        shows("v", "two at once");
        shows("n", "that was the last");
        shows("g 2", "SubmitJob");
        shows("n 9", "two at once");
        shows("s 999", "no state");
        shows("what", "the first violation");
        shows("n x", "numbers come after");
        assert_eq!(stepper.execute("q"), None);
    }
}
