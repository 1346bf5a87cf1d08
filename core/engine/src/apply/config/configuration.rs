//! The tree of queues and the topology, each replaced as a whole.

use std::sync::Arc;

use muster_model::command::JobDefaults;
use muster_model::event::EventKind;
use muster_model::ids::RequestKey;
use muster_model::quota::{self, Guarantee, QueueConfig, QueueTree, parent_of};
use muster_model::rejection::Rejection;
use muster_model::spec::{DEFAULT_QUEUE, Violation};
use muster_model::topology::{self, ClusterTree, Topology};

use crate::apply::Step;
use crate::apply::config::capacity;
use crate::state::{Answer, History, Queue, State};

impl Step<'_> {
    pub(in crate::apply) fn configure_queues(
        &mut self,
        request: RequestKey,
        author: &str,
        tree: &Arc<QueueTree>,
    ) -> Result<Answer, Rejection> {
        self.once(request, |step| {
            let mut broken = quota::validate(tree, &step.state.topology);
            broken.extend(missing_names(tree));
            if broken.is_empty() {
                broken = capacity::check(step.state, &with_default(tree));
            }
            if !broken.is_empty() {
                return Err(Rejection::InvalidConfiguration(broken));
            }
            step.settle_all_histories();
            let mut changed = step.take_over(tree);
            changed.extend(step.retire_others(tree));
            changed.sort_unstable();
            step.change_half_life(tree.history_half_life_ms);
            step.state.defragment = tree.defragment;
            step.rebuild_user_histories();
            let State {
                index,
                queues,
                jobs,
                ..
            } = &mut *step.state;
            index.reclassify_waiting(queues, jobs);
            let topology = Arc::clone(&step.state.topology);
            step.settle_cells(&topology);
            step.settle_levels();
            step.emit(EventKind::QueuesConfigured {
                author: author.to_owned(),
                queues: changed,
            });
            Ok(Answer::Done)
        })
    }

    /// Sets the defaults for jobs without settings of their own. A repetition changes nothing.
    pub(in crate::apply) fn set_job_defaults(&mut self, defaults: JobDefaults) -> Answer {
        if self.state.job_defaults != Some(defaults) {
            self.state.job_defaults = Some(defaults);
            self.emit(EventKind::JobDefaultsSet(defaults));
        }
        Answer::Done
    }

    /// Applies the queues of the tree and `default`; returns the new and the changed ones.
    fn take_over(&mut self, tree: &QueueTree) -> Vec<String> {
        let mut changed = Vec::new();
        for (name, config) in with_default(tree) {
            let queues = &mut self.state.queues;
            match queues.get_mut(name) {
                Some(queue) if !queue.retired && *queue.config == config => {}
                Some(queue) => {
                    let queue = Arc::make_mut(queue);
                    queue.config = Arc::new(config);
                    queue.retired = false;
                    changed.push(name.to_owned());
                }
                None => {
                    let queue = Queue::configured(name, Arc::new(config));
                    queues.insert(Arc::clone(&queue.name), Arc::new(queue));
                    changed.push(name.to_owned());
                }
            }
        }
        changed
    }

    /// Retires the queues that the tree no longer names; returns the newly retired ones.
    fn retire_others(&mut self, tree: &QueueTree) -> Vec<String> {
        let mut retired = Vec::new();
        let names: Vec<Arc<str>> = self.state.queues.keys().cloned().collect();
        // Parents precede their children: in reverse order, a queue is visited after its children are
        // removed.
        for name in names.iter().rev() {
            if **name == *DEFAULT_QUEUE || tree.queues.contains_key(&**name) {
                continue;
            }
            if let Some(queue) = self.state.queues.get_mut(name).map(Arc::make_mut)
                && !queue.retired
            {
                queue.retired = true;
                Arc::make_mut(&mut queue.config).guarantee = Guarantee::default();
                retired.push(name.to_string());
            }
            self.remove_if_over(name);
        }
        retired
    }

    /// Removes a retired queue without live jobs and children, and then its retired ancestors that are empty
    /// too.
    pub(in crate::apply) fn remove_if_over(&mut self, name: &str) {
        let mut next = Some(name);
        while let Some(name) = next {
            let queues = &self.state.queues;
            let over = queues
                .get(name)
                .is_some_and(|queue| queue.retired && queue.live_jobs == 0);
            let first: Arc<str> = Arc::from(format!("{name}/"));
            let mut inside = queues.range(Arc::clone(&first)..);
            let is_empty = inside
                .next()
                .is_none_or(|(other, _)| !other.starts_with(&*first));
            if !over || !is_empty {
                return;
            }
            self.state.queues.remove(name);
            next = parent_of(name);
        }
    }

    /// Applies a new half-life to past usage; without one the history is dropped.
    fn change_half_life(&mut self, half_life_ms: Option<u64>) {
        let time = self.state.time;
        let counted = self.state.history_half_life_ms.is_some();
        self.state.history_half_life_ms = half_life_ms;
        let names: Vec<Arc<str>> = self.state.queues.keys().cloned().collect();
        for name in names {
            let Some(queue) = self.state.queues.get_mut(&name) else {
                continue;
            };
            let history = match half_life_ms {
                None => History::default(),
                Some(_) if counted && queue.history != History::default() => continue,
                Some(_) => History {
                    gpu_ms: 0,
                    as_of: time,
                },
            };
            if queue.history != history {
                Arc::make_mut(queue).history = history;
            }
        }
    }

    pub(in crate::apply) fn set_topology(
        &mut self,
        request: RequestKey,
        author: &str,
        topology: &Arc<Topology>,
    ) -> Result<Answer, Rejection> {
        self.once(request, |step| {
            let mut broken = topology::validate(topology);
            let tree = step.state.cluster_tree_by(topology);
            if broken.is_empty() {
                broken = lost_levels(step, topology, &tree);
            }
            if broken.is_empty() {
                broken = capacity::check_cells(step.state, &tree);
            }
            if !broken.is_empty() {
                return Err(Rejection::InvalidConfiguration(broken));
            }
            step.state.configured_topology = Arc::clone(topology);
            step.rebuild_tree();
            step.emit(EventKind::TopologySet {
                author: author.to_owned(),
            });
            Ok(Answer::Done)
        })
    }
}

/// Returns all queues of a tree, including `default`.
fn with_default(tree: &QueueTree) -> Vec<(&str, QueueConfig)> {
    let named = tree.queues.iter();
    let mut queues: Vec<(&str, QueueConfig)> = named
        .map(|(name, config)| (name.as_str(), config.clone()))
        .collect();
    if !tree.queues.contains_key(DEFAULT_QUEUE) {
        queues.push((DEFAULT_QUEUE, QueueConfig::default()));
    }
    queues
}

/// Checks that `default` has no children unless the tree names it: jobs without a queue go there.
pub(in crate::apply) fn missing_names(tree: &QueueTree) -> Option<Violation> {
    let inside = tree
        .queues
        .keys()
        .find(|name| parent_of(name) == Some(DEFAULT_QUEUE))?;
    Some(Violation {
        field: format!("queues.{inside}"),
        rule: format!(
            "lies in `{DEFAULT_QUEUE}`, which takes the jobs that name no queue and therefore has none in it"
        ),
    })
}

/// Returns the removed levels that virtual clusters have cells of.
fn lost_levels(step: &Step<'_>, topology: &Topology, tree: &ClusterTree) -> Vec<Violation> {
    let mut lost = Vec::new();
    for (name, queue) in &step.state.queues {
        let Guarantee::Cells(quotas) = &queue.config.guarantee else {
            continue;
        };
        let gone = quotas
            .iter()
            .filter(|quota| !tree.has_level_without_guarantees(topology, &quota.level));
        lost.extend(gone.map(|quota| Violation {
            field: "topology".to_owned(),
            rule: format!(
                "level `{}` is gone, and queue `{name}` is guaranteed cells of it",
                quota.level
            ),
        }));
    }
    lost
}
