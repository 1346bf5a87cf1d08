//! The log of a scenario: audits, leader changes between two commands, and states rebuilt from the log.

use muster_engine::apply::apply;
use muster_engine::state::{Answer, State};
use muster_harness::{Observe, Step};
use muster_model::command::Command;
use muster_model::ids::{ReplicaId, Revision};
use muster_model::rejection::Rejection;
use muster_model::time::TimeMs;

use crate::scenario::engine::Failure;
use crate::scenario::engine::driver::Driver;

/// A command and its result.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) revision: Revision,
    pub(crate) time: TimeMs,
    pub(crate) command: Command,
    pub(crate) result: Result<Answer, Rejection>,
}

/// All applied commands, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Vec<Entry>);

impl Observe for Log {
    fn observe(&mut self, step: Step<'_>) {
        self.0.push(Entry {
            revision: step.applied.revision,
            time: step.time,
            command: step.command.clone(),
            result: step.applied.result.clone(),
        });
    }
}

impl Driver {
    /// All applied commands, oldest first.
    pub(crate) fn log(&self) -> &[Entry] {
        &self.engine.observer.0
    }

    /// Starts a new leadership.
    pub(crate) fn new_leader(&mut self) -> Result<(), Failure> {
        self.replicas += 1;
        let replica = ReplicaId(self.replicas);
        self.apply(&Command::LeadershipStarted { replica })
            .map(|_| ())
    }

    /// Applies a command now; after the command at which the script's run is cut, a new leader begins.
    ///
    /// # Errors
    /// If the state fails its audit afterwards. A refusal is a result, not an error.
    pub(super) fn apply(
        &mut self,
        command: &Command,
    ) -> Result<Result<Answer, Rejection>, Failure> {
        let result = self.engine.apply(command).result;
        let findings = self.engine.findings();
        if !findings.is_empty() {
            return Err(Failure::Audit(findings));
        }
        if self.cut_after == Some(self.log().len()) {
            self.cut_after = None;
            self.new_leader()?;
        }
        Ok(result)
    }

    /// Rebuilds the state from the log and from its parts, compares, and continues with the one from its
    /// parts.
    pub(crate) fn restart(&mut self) -> Result<(), Failure> {
        let mut replayed = State::default();
        for entry in self.log() {
            let applied = apply(&mut replayed, entry.time, &entry.command);
            if applied.result != entry.result {
                return Err(Failure::Restart {
                    way: "replayed from the log",
                    what: format!(
                        "revision {} returned {:?} before and {:?} now",
                        entry.revision, entry.result, applied.result
                    ),
                });
            }
        }
        compare("replayed from the log", &self.engine.state, &replayed)?;
        let restored = State::restore(self.engine.state.parts());
        compare("restored from its parts", &self.engine.state, &restored)?;
        self.engine.state = restored;
        Ok(())
    }
}

/// Compares what is stored, by its hash and by its parts, and what is derived from it.
fn compare(way: &'static str, known: &State, rebuilt: &State) -> Result<(), Failure> {
    let mut names = known.parts().differing(&rebuilt.parts());
    if known.state_hash() != rebuilt.state_hash() {
        names.push("hash");
    }
    let same_index = known.index == rebuilt.index;
    if !same_index {
        names.push("index");
    }
    if names.is_empty() {
        return Ok(());
    }
    let mut what = names.join(", ");
    if !same_index {
        what.push_str(&first_difference(&known.index, &rebuilt.index));
    }
    Err(Failure::Restart { way, what })
}

/// The first line in which two values differ, with its field.
fn first_difference(known: &impl std::fmt::Debug, rebuilt: &impl std::fmt::Debug) -> String {
    /// Indentation of a field's name.
    const FIELD: &str = "    ";
    let (known, rebuilt) = (format!("{known:#?}"), format!("{rebuilt:#?}"));
    let mut field = "";
    let mut rebuilt = rebuilt.lines();
    for line in known.lines() {
        let name = line.strip_prefix(FIELD);
        if let Some(name) = name.filter(|name| !name.starts_with([' ', '}', ')', ']'])) {
            field = name;
        }
        let other = rebuilt.next().unwrap_or("nothing");
        if line != other {
            let (line, other) = (line.trim(), other.trim());
            return format!(" (in `{field}` kept `{line}`, rebuilt `{other}`)");
        }
    }
    " (the rebuilt one has more)".to_owned()
}
