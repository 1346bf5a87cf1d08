//! Record of a world: all events, scene by scene, and every state.
//!
//! Worlds are deterministic, so no record is kept while thousands of them run: a failed one is run again.

mod difference;
mod filter;
mod stepper;

use std::collections::BTreeMap;
use std::fmt;

use muster_engine::state::State;
use muster_model::ids::{JobId, Revision};
use serde::Serialize;

pub use difference::{describe, difference};
pub use filter::Filter;
pub use stepper::Stepper;

use crate::sim::runtime::NodeId;

/// Maximum scenes and states in a record; later ones are dropped and counted. A world of a minute has some
/// thousands.
pub const SCENES_MAX: usize = 500_000;
const STATES_MAX: usize = 50_000;
/// Maximum characters of a scene's text; specifications can be long.
const WHAT_CHARS_MAX: usize = 240;

/// Kind of a scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SceneKind {
    /// A fault or a repair, or a skipped one.
    Fault,
    /// A new leader or term.
    Leader,
    /// A command applied for the first time.
    Command,
    /// An event of the state.
    Event,
    /// A user called.
    Call,
    /// An answer to a user.
    Answer,
    /// Start or end of a task's process.
    Task,
    /// A violation of an invariant.
    Violation,
}

impl SceneKind {
    const fn words(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::Leader => "leader",
            Self::Command => "command",
            Self::Event => "event",
            Self::Call => "call",
            Self::Answer => "answer",
            Self::Task => "task",
            Self::Violation => "VIOLATION",
        }
    }
}

/// One event of a world.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Scene {
    /// Milliseconds since the start of the world.
    pub at_ms: u64,
    /// Kind of the scene.
    pub kind: SceneKind,
    /// Name of the node, `replica-1`, `node03` or `user-0`; `None` for the whole world.
    pub node: Option<String>,
    /// The job concerned.
    pub job: Option<JobId>,
    /// Revision that was created, or returned in an answer.
    pub revision: Option<Revision>,
    /// Description.
    pub what: String,
}

impl Scene {
    /// A scene about the whole world; its time is set when it is recorded.
    #[must_use]
    pub fn new(kind: SceneKind, what: impl fmt::Display) -> Self {
        let mut text = what.to_string();
        if let Some((end, _)) = text.char_indices().nth(WHAT_CHARS_MAX) {
            text.truncate(end);
            text.push_str(" ...");
        }
        Self {
            at_ms: 0,
            kind,
            node: None,
            job: None,
            revision: None,
            what: text,
        }
    }

    /// Sets the node.
    #[must_use]
    pub fn on(mut self, node: NodeId) -> Self {
        self.node = Some(name_of(node));
        self
    }

    /// Sets the job.
    #[must_use]
    pub fn about(mut self, job: Option<JobId>) -> Self {
        self.job = job;
        self
    }

    /// Sets the revision.
    #[must_use]
    pub const fn at(mut self, revision: Revision) -> Self {
        self.revision = Some(revision);
        self
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.at_ms / 1_000, self.at_ms % 1_000);
        let (kind, node) = (self.kind.words(), self.node.as_deref().unwrap_or(""));
        let revision = self.revision.map(|it| it.to_string()).unwrap_or_default();
        write!(
            formatter,
            "{seconds:>4}.{millis:03} s  {kind:<9}  {node:<9}  {revision:>6}  {}",
            self.what
        )
    }
}

/// Name of a node, as used in filters.
fn name_of(node: NodeId) -> String {
    match node.0 {
        0 => "world".to_owned(),
        id @ 1..900 => format!("replica-{id}"),
        id @ 900..1_000 => format!("user-{}", id - 900),
        id => format!("node{:02}", (id - 1_000) / 2),
    }
}

/// All scenes and states of a world.
#[derive(Clone, Debug, Default)]
pub struct Record {
    scenes: Vec<Scene>,
    states: BTreeMap<Revision, State>,
    dropped: u64,
}

impl Record {
    /// Records a scene with its time.
    pub fn push(&mut self, at_ms: u64, scene: Scene) {
        if self.scenes.len() >= SCENES_MAX {
            self.dropped += 1;
            return;
        }
        self.scenes.push(Scene { at_ms, ..scene });
    }

    /// Records a state.
    pub fn keep(&mut self, state: &State) {
        if self.states.len() < STATES_MAX {
            self.states.insert(state.revision, state.clone());
        }
    }

    /// All scenes in order.
    #[must_use]
    pub fn scenes(&self) -> &[Scene] {
        &self.scenes
    }

    /// Number of scenes dropped because there were too many.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The state at a revision. Several commands of one entry result in one state, so it may be that of a
    /// later revision.
    #[must_use]
    pub fn state(&self, revision: Revision) -> Option<&State> {
        self.states.range(revision..).next().map(|(_, state)| state)
    }

    /// The newest state up to a revision.
    #[must_use]
    pub fn state_upto(&self, revision: Revision) -> Option<&State> {
        let mut older = self.states.range(..=revision);
        older.next_back().map(|(_, state)| state)
    }

    /// Position of the first violation.
    #[must_use]
    pub fn first_violation(&self) -> Option<usize> {
        let mut scenes = self.scenes.iter();
        scenes.position(|scene| scene.kind == SceneKind::Violation)
    }

    /// The last `count` scenes up to the first violation, or up to the end of the world.
    #[must_use]
    pub fn last(&self, count: usize) -> &[Scene] {
        let end = self
            .first_violation()
            .map_or(self.scenes.len(), |at| at + 1);
        &self.scenes[end.saturating_sub(count)..end]
    }

    /// Revisions before and after the last command before the first violation.
    #[must_use]
    pub fn last_change(&self) -> Option<(Revision, Revision)> {
        let end = self.first_violation().unwrap_or(self.scenes.len());
        let commands = self.scenes[..end].iter().rev();
        let made = commands.filter(|it| it.kind == SceneKind::Command);
        let last = made.filter_map(|it| it.revision).next()?;
        let (before, _) = self.states.range(..last).next_back()?;
        Some((*before, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_the_names_that_people_know() {
        let names = [1, 900, 1_000, 1_007].map(|node| name_of(NodeId(node)));
        assert_eq!(names, ["replica-1", "user-0", "node00", "node03"]);
    }

    #[test]
    fn the_last_scenes_end_with_the_violation() {
        let mut record = Record::default();
        for at_ms in 0..5 {
            record.push(at_ms, Scene::new(SceneKind::Fault, at_ms));
        }
        assert_eq!(record.last(2).len(), 2);
        assert_eq!(record.last(2)[1].at_ms, 4);
        record.push(5, Scene::new(SceneKind::Violation, "two at once"));
        record.push(6, Scene::new(SceneKind::Fault, "later"));
        assert_eq!(record.last(2)[1].what, "two at once");
        assert_eq!(record.last(99).len(), 6);
    }

    #[test]
    fn long_texts_are_cut() {
        let scene = Scene::new(SceneKind::Command, "ä".repeat(1_000));
        assert_eq!(scene.what.chars().count(), WHAT_CHARS_MAX + 4);
    }
}
