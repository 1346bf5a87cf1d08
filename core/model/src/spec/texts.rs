//! Text size of task assignments, which limits the number of tasks per host.

use crate::ids::TaskIndex;
use crate::limits::TASK_TEXT_BYTES;
use crate::spec::{Container, Execution, JobSpec, TaskGroup};

/// Encoding overhead of each text in bytes: its tag and length.
const BYTES_BESIDE_TEXT: usize = 8;

impl TaskGroup {
    /// Weight of each of these tasks in the limit of its host (`TASKS_PER_HOST_MAX`): one per started
    /// `TASK_TEXT_BYTES` of its texts, because all assignments of a worker are one message.
    #[must_use]
    pub fn task_weight(&self) -> u32 {
        let places = self.text_bytes().div_ceil(TASK_TEXT_BYTES).max(1);
        u32::try_from(places).unwrap_or(u32::MAX)
    }

    fn text_bytes(&self) -> usize {
        let environment = self.environment.iter();
        all(&self.command)
            + environment
                .map(|(name, value)| of(name) + of(value))
                .sum::<usize>()
            + self.working_directory.as_deref().map_or(0, of)
            + self.execution.text_bytes()
    }
}

/// Weight of each task of a job in the limit of its host ([`TaskGroup::places`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskWeights {
    /// For each group: the index of the first task after it, and the weight of each of its tasks.
    groups: Vec<(u32, u32)>,
}

impl TaskWeights {
    /// Weight of a task.
    #[must_use]
    pub fn of(&self, task: TaskIndex) -> u32 {
        let group = self.groups.partition_point(|(end, _)| *end <= task.get());
        self.groups.get(group).map_or(1, |(_, places)| *places)
    }
}

impl JobSpec {
    /// Weights of the job's tasks.
    #[must_use]
    pub fn task_weights(&self) -> TaskWeights {
        let mut end = 0u32;
        let groups = self.groups.iter().map(|group| {
            end = end.saturating_add(group.count);
            (end, group.task_weight())
        });
        TaskWeights {
            groups: groups.collect(),
        }
    }
}

impl Execution {
    fn text_bytes(&self) -> usize {
        let secrets = self.secrets.iter();
        let container = self.container.as_ref().map_or(0, Container::text_bytes);
        container
            + secrets
                .map(|it| of(&it.name) + of(it.form.variable()))
                .sum::<usize>()
    }
}

impl Container {
    fn text_bytes(&self) -> usize {
        let mounts = self.mounts.iter();
        let others = [&self.user, &self.userns, &self.gpus];
        of(&self.image)
            + all(&self.entrypoint)
            + others
                .into_iter()
                .flatten()
                .map(|text| of(text))
                .sum::<usize>()
            + mounts
                .map(|it| of(&it.source) + of(&it.target))
                .sum::<usize>()
    }
}

fn all(texts: &[String]) -> usize {
    texts.iter().map(|text| of(text)).sum()
}

fn of(text: &str) -> usize {
    text.len() + BYTES_BESIDE_TEXT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{TASKS_PER_HOST_MAX, WORKER_MESSAGE_BYTES_MAX};
    use crate::testing;

    #[test]
    fn a_task_counts_as_one_for_each_piece_of_its_texts() {
        let mut group = testing::single("job", 1, 0).groups.remove(0);
        assert_eq!(group.task_weight(), 1);
        let text = |bytes: usize| "x".repeat(bytes);
        group.command = vec![text(TASK_TEXT_BYTES)];
        group.environment.clear();
        assert_eq!(
            group.task_weight(),
            2,
            "the bytes beside the text count as well"
        );
        group
            .environment
            .insert(text(100), text(10 * TASK_TEXT_BYTES));
        assert_eq!(group.task_weight(), 12);
        group.execution.container = Some(Container {
            image: text(TASK_TEXT_BYTES),
            ..Container::default()
        });
        assert_eq!(group.task_weight(), 13);
    }

    #[test]
    fn the_weight_of_a_task_is_that_of_its_group() {
        let mut spec = testing::gang("gang", 3, 1);
        let mut short = spec.groups[0].clone();
        spec.groups[0].command = vec!["x".repeat(TASK_TEXT_BYTES)];
        short.count = 2;
        spec.groups.push(short);
        let places = spec.task_weights();
        let counted = [0, 2, 3, 4, 5].map(|task| places.of(TaskIndex(task)));
        assert_eq!(counted, [2, 2, 1, 1, 1], "there is no task 5");
    }

    #[test]
    fn all_tasks_of_a_host_fit_into_one_message() {
        let texts = TASKS_PER_HOST_MAX * TASK_TEXT_BYTES;
        assert!(texts <= WORKER_MESSAGE_BYTES_MAX / 4 * 3);
    }
}
