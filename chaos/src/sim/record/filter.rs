//! Filter for the scenes of a record.

use muster_model::ids::JobId;

use crate::sim::record::{Record, Scene, SceneKind};

/// Selected scenes; all of them by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Start time in milliseconds.
    pub from_ms: Option<u64>,
    /// End time in milliseconds.
    pub until_ms: Option<u64>,
    /// Only scenes on this node: `replica-1`, `node03`, `user-0`.
    pub node: Option<String>,
    /// Only scenes about this job.
    pub job: Option<JobId>,
    /// Only the last scenes, this many.
    pub last: Option<usize>,
}

impl Filter {
    /// Whether it limits the time.
    #[must_use]
    pub const fn has_times(&self) -> bool {
        self.from_ms.is_some() || self.until_ms.is_some()
    }

    /// Returns the matching scenes. Without times, none after the first violation. Faults and violations
    /// match whatever node and job are selected: without them nothing else makes sense.
    #[must_use]
    pub fn select<'a>(&self, record: &'a Record) -> Vec<&'a Scene> {
        let scenes = match self.has_times() {
            true => record.scenes(),
            false => record.last(usize::MAX),
        };
        let mut chosen: Vec<&Scene> = scenes.iter().filter(|scene| self.lets(scene)).collect();
        if let Some(last) = self.last {
            chosen.drain(..chosen.len().saturating_sub(last));
        }
        chosen
    }

    fn lets(&self, scene: &Scene) -> bool {
        let is_late = self.from_ms.is_none_or(|from| scene.at_ms >= from);
        let is_early = self.until_ms.is_none_or(|until| scene.at_ms <= until);
        let always = matches!(scene.kind, SceneKind::Fault | SceneKind::Violation);
        let is_here = self.node.is_none() || scene.node == self.node;
        let is_about = self.job.is_none() || scene.job == self.job;
        is_late && is_early && (always || (is_here && is_about))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::runtime::NodeId;

    fn record() -> Record {
        let mut record = Record::default();
        record.push(1, Scene::new(SceneKind::Fault, "kill").on(NodeId(1)));
        for at_ms in 2..6 {
            let job = Some(JobId(at_ms % 2));
            let scene = Scene::new(SceneKind::Task, at_ms)
                .on(NodeId(1_000))
                .about(job);
            record.push(at_ms, scene);
        }
        record.push(6, Scene::new(SceneKind::Violation, "two"));
        record.push(7, Scene::new(SceneKind::Task, "late").on(NodeId(1_002)));
        record
    }

    fn times(filter: &Filter) -> Vec<u64> {
        let record = record();
        filter.select(&record).iter().map(|it| it.at_ms).collect()
    }

    #[test]
    fn scenes_are_chosen_by_time_node_job_and_count() {
        assert_eq!(times(&Filter::default()), [1, 2, 3, 4, 5, 6]);
        let of_job = Filter {
            job: Some(JobId(1)),
            ..Filter::default()
        };
        assert_eq!(times(&of_job), [1, 3, 5, 6]);
        let last = Filter {
            last: Some(2),
            ..of_job
        };
        assert_eq!(times(&last), [5, 6]);
        let later = Filter {
            from_ms: Some(5),
            node: Some("node01".to_owned()),
            ..Filter::default()
        };
        assert_eq!(times(&later), [6, 7]);
        let early = Filter {
            until_ms: Some(2),
            ..Filter::default()
        };
        assert_eq!(times(&early), [1, 2]);
    }
}
