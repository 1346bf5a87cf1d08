//! The record of a world: everything that happened, scene by scene, and every state that it went through.
//!
//! Worlds are deterministic, so nobody keeps a record while thousands of them run: the one that failed is run again.

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

/// Scenes and states that a record keeps; what comes after is dropped, and the record says so. A world of a minute has some
/// thousands.
pub const SCENES_MAX: usize = 500_000;
const STATES_MAX: usize = 50_000;
/// Characters of what a scene says; specifications can be long.
const WHAT_CHARS_MAX: usize = 240;

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SceneKind {
    /// Something was broken or repaired, or could not be.
    Act,
    /// Somebody leads, or a term began.
    Leader,
    /// A command was applied for the first time.
    Command,
    /// An event of the state.
    Event,
    /// A user called.
    Call,
    /// A user was answered.
    Answer,
    /// A process of a task began, or ended.
    Task,
    /// Something must not have happened.
    Violation,
}

impl SceneKind {
    const fn words(self) -> &'static str {
        match self {
            Self::Act => "act",
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

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Scene {
    /// Milliseconds since the world began.
    pub at_ms: u64,
    /// What kind of thing.
    pub kind: SceneKind,
    /// Where: `replica-1`, `node03`, `user-0`; none where it is about the whole world.
    pub node: Option<String>,
    /// Which job it is about.
    pub job: Option<JobId>,
    /// Revision of the state that it made, or was told.
    pub revision: Option<Revision>,
    /// What happened, for people.
    pub what: String,
}

impl Scene {
    /// A scene about the whole world; its time is that at which it is noted.
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

    /// Where it happened.
    #[must_use]
    pub fn on(mut self, node: NodeId) -> Self {
        self.node = Some(name_of(node));
        self
    }

    /// Which job it is about.
    #[must_use]
    pub fn about(mut self, job: Option<JobId>) -> Self {
        self.job = job;
        self
    }

    /// Which revision it made.
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

/// Name of a node, as filters take it.
fn name_of(node: NodeId) -> String {
    match node.0 {
        0 => "world".to_owned(),
        id @ 1..900 => format!("replica-{id}"),
        id @ 900..1_000 => format!("user-{}", id - 900),
        id => format!("node{:02}", (id - 1_000) / 2),
    }
}

/// Everything that happened.
#[derive(Clone, Debug, Default)]
pub struct Record {
    scenes: Vec<Scene>,
    states: BTreeMap<Revision, State>,
    dropped: u64,
}

impl Record {
    /// Notes a scene, at a time.
    pub fn push(&mut self, at_ms: u64, scene: Scene) {
        if self.scenes.len() >= SCENES_MAX {
            self.dropped += 1;
            return;
        }
        self.scenes.push(Scene { at_ms, ..scene });
    }

    /// Keeps a state.
    pub fn keep(&mut self, state: &State) {
        if self.states.len() < STATES_MAX {
            self.states.insert(state.revision, state.clone());
        }
    }

    /// All scenes, in order.
    #[must_use]
    pub fn scenes(&self) -> &[Scene] {
        &self.scenes
    }

    /// Scenes that were not kept, because there were too many.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The state at a revision: several commands of one entry leave one state, so it may be that of a later one.
    #[must_use]
    pub fn state(&self, revision: Revision) -> Option<&State> {
        self.states.range(revision..).next().map(|(_, state)| state)
    }

    /// The newest state that is not newer than a revision.
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

    /// The scenes that end with the first violation, or with the end of the world: so many at most.
    #[must_use]
    pub fn last(&self, count: usize) -> &[Scene] {
        let end = self
            .first_violation()
            .map_or(self.scenes.len(), |at| at + 1);
        &self.scenes[end.saturating_sub(count)..end]
    }

    /// What the last command before the first violation changed: the revisions around it.
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
    fn what_comes_last_ends_with_the_violation() {
        let mut record = Record::default();
        for at_ms in 0..5 {
            record.push(at_ms, Scene::new(SceneKind::Act, at_ms));
        }
        assert_eq!(record.last(2).len(), 2);
        assert_eq!(record.last(2)[1].at_ms, 4);
        record.push(5, Scene::new(SceneKind::Violation, "two at once"));
        record.push(6, Scene::new(SceneKind::Act, "later"));
        assert_eq!(record.last(2)[1].what, "two at once");
        assert_eq!(record.last(99).len(), 6);
    }

    #[test]
    fn long_texts_are_cut() {
        let scene = Scene::new(SceneKind::Command, "ä".repeat(1_000));
        assert_eq!(scene.what.chars().count(), WHAT_CHARS_MAX + 4);
    }
}
