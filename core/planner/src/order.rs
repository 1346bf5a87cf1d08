//! Hierarchical fair-share order of the waiting jobs: at every level of the queue tree the child with the
//! smallest share is next; inside a queue the queue's configured order decides.
//!
//! Opportunistic jobs come after all others, which have the right to preempt them: a job that was placed first would
//! be stopped at once.
//!
//! Every placement of the round raises the share of its queue. Ties go to the head with the higher priority,
//! then to the older one, so a cluster with one queue is served by priority and age.
//!
//! The tree is one vector of nodes, which name each other by position; every set has what is served next as
//! its first entry. For the queues `a` with a child `x`, and `b` in fair order with the user `ann`:
//!
//! ```text
//! nodes[0] root     children {(rank, 3), (rank, 1)}
//! nodes[1]   a        children {(rank, 2)}
//! nodes[2]     x        classes {(head, 7), (head, 4)}  jobs wait in leaves, by waiting class:
//! nodes[3]   b        children {(rank, 4)}              classes[7] and classes[4] of the order
//! nodes[4]     ann      classes {(head, 9)}
//! ```
//!
//! A node's rank is its key in its parent's `children`. Where nothing waits, a node has no rank and its
//! parent does not list it, so the way along first entries always ends at a job.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdSet;
use muster_engine::state::{State, Usage, WaitingClass, WaitingKey};
use muster_model::ids::{JobId, UnitIndex};
use muster_model::quota::{Amounts, QueueConfig, QueueOrder, within};

use crate::allowance::is_limited;
use crate::placement_classes::PlacementClasses;
use crate::share::{Holding, Share, guaranteed};

/// A waiting class of jobs in a round.
pub(super) struct QueuedClass<'a> {
    pub(super) class: &'a WaitingClass,
    /// Waiting classes with equal numbers have the same placement class.
    pub(super) placement_class: usize,
    /// Whether its queue or an ancestor has a limit.
    pub(super) limited: bool,
    jobs: Box<dyn Iterator<Item = &'a WaitingKey> + 'a>,
    head: Option<WaitingKey>,
    /// Number of jobs from the head on.
    left: u64,
    /// Units of the head not considered yet, once the first one was.
    units: Option<Box<dyn Iterator<Item = UnitIndex> + 'a>>,
    leaf: usize,
}

/// A queue, or a user within a queue with fair order.
struct Node<'a> {
    parent: Option<usize>,
    /// Name of the queue; `None` for a user.
    queue: Option<&'a str>,
    config: Arc<QueueConfig>,
    guarantee: Amounts,
    holding: Holding,
    limited: bool,
    children: BTreeSet<(Rank, usize)>,
    /// Waiting classes with jobs, by head.
    classes: BTreeSet<(Head, usize)>,
    /// Its key in the parent's `children`; `None` while nothing waits in it or below it.
    rank: Option<Rank>,
}

/// Whether the head is opportunistic, then its priority and age: the key of a waiting class in its leaf.
type Head = (bool, WaitingKey);

/// Whether the head is opportunistic, then share, then the head's priority and age: the key of a node among its
/// siblings.
type Rank = (bool, Share, WaitingKey);

/// The queue tree with the jobs not considered yet.
pub(super) struct Order<'a> {
    state: &'a State,
    classes: Vec<QueuedClass<'a>>,
    nodes: Vec<Node<'a>>,
}

/// The job whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) job: JobId,
    pub(super) class: usize,
}

const ROOT: usize = 0;

impl<'a> Order<'a> {
    pub(super) fn new(state: &'a State) -> Self {
        let mut order = Self {
            state,
            classes: Vec::new(),
            nodes: vec![Node::root()],
        };
        let mut leaves = Leaves::default();
        let mut places = PlacementClasses::default();
        for (class, jobs) in &state.index.waiting {
            let leaf = order.leaf_of(class, &mut leaves);
            order.add_class(class, jobs, leaf, places.number(&class.shape));
        }
        // Ranks leaf by leaf, once all classes are known. Children come after their parents, so seen from the
        // end an inner node already lists the children in which jobs wait.
        for node in (0..order.nodes.len()).rev() {
            if order.nodes[node].children.is_empty() {
                order.settle(node);
            }
        }
        order
    }

    /// Appends a waiting class, at its leaf and in the list of all.
    fn add_class(
        &mut self,
        class: &'a WaitingClass,
        jobs: &'a OrdSet<WaitingKey>,
        leaf: usize,
        places: usize,
    ) {
        let left = jobs.len() as u64;
        let mut jobs = Box::new(jobs.iter());
        let head = jobs.next().copied();
        let position = self.classes.len();
        let node = &mut self.nodes[leaf];
        let is_opportunistic = class.shape.is_opportunistic();
        node.classes
            .extend(head.map(|head| ((is_opportunistic, head), position)));
        self.classes.push(QueuedClass {
            class,
            placement_class: places,
            limited: node.limited,
            jobs,
            head,
            left,
            units: None,
            leaf,
        });
    }

    /// The node in which a waiting class waits; creates it and its ancestors if they are missing.
    fn leaf_of(&mut self, class: &'a WaitingClass, leaves: &mut Leaves<'a>) -> usize {
        let name: &'a str = &class.queue;
        if let Some(leaf) = leaves.get(&(name, class.user.as_deref())) {
            return *leaf;
        }
        let mut path: Vec<&'a str> = within(name).collect();
        path.reverse();
        let mut node = ROOT;
        for queue in path {
            node = *leaves.entry((queue, None)).or_insert_with(|| {
                self.nodes.push(Node::of_queue(self.state, node, queue));
                self.nodes.len() - 1
            });
        }
        if let Some(user) = class.user.as_deref() {
            if self.nodes[node].config.order == QueueOrder::Fair {
                self.nodes.push(Node::of_user(self.state, node, name, user));
                node = self.nodes.len() - 1;
            }
            leaves.insert((name, Some(user)), node);
        }
        node
    }

    /// The job whose turn it is; the turn stays until the job is passed or its waiting class is closed.
    pub(super) fn next(&self) -> Option<Turn> {
        let mut node = &self.nodes[ROOT];
        while let Some((_, child)) = node.children.first() {
            node = &self.nodes[*child];
        }
        let ((_, (_, job)), class) = node.classes.first()?;
        Some(Turn {
            job: *job,
            class: *class,
        })
    }

    /// The next unit of the job whose turn it is.
    pub(super) fn next_unit(&mut self, turn: Turn) -> Option<UnitIndex> {
        let queued = &mut self.classes[turn.class];
        if queued.units.is_none() {
            let job = self.state.job(turn.job)?;
            queued.units = Some(Box::new(job.waiting_units()));
        }
        queued.units.as_mut()?.next()
    }

    /// Adds amounts to the usage of the job's queue, its ancestors, and the user within them.
    pub(super) fn charge(&mut self, class: usize, amounts: &Amounts, opportunistic: bool) {
        let leaf = self.classes[class].leaf;
        let mut at = Some(leaf);
        while let Some(node) = at {
            self.nodes[node].holding.add(amounts, opportunistic);
            at = self.nodes[node].parent;
        }
        self.settle(leaf);
    }

    /// Advances to the next job.
    pub(super) fn pass(&mut self, turn: Turn) {
        let queued = &mut self.classes[turn.class];
        let Some(head) = queued.head.take() else {
            return;
        };
        queued.units = None;
        queued.head = queued.jobs.next().copied();
        queued.left -= 1;
        let is_opportunistic = queued.class.shape.is_opportunistic();
        let classes = &mut self.nodes[queued.leaf].classes;
        classes.remove(&((is_opportunistic, head), turn.class));
        classes.extend(
            queued
                .head
                .map(|head| ((is_opportunistic, head), turn.class)),
        );
        let leaf = queued.leaf;
        self.settle(leaf);
    }

    /// Closes a waiting class for this round; returns the number of jobs left in it.
    pub(super) fn close(&mut self, class: usize) -> u64 {
        let queued = &mut self.classes[class];
        let Some(head) = queued.head.take() else {
            return 0;
        };
        let (leaf, is_opportunistic) = (queued.leaf, queued.class.shape.is_opportunistic());
        let head = (is_opportunistic, head);
        self.nodes[leaf].classes.remove(&(head, class));
        self.settle(leaf);
        std::mem::take(&mut self.classes[class].left)
    }

    /// Open waiting classes of the same queue whose jobs compete with those of this one, itself included.
    pub(super) fn competing(&self, class: usize, lacks_gpus: bool) -> Vec<usize> {
        let ours = self.classes[class].class;
        let start = self
            .classes
            .partition_point(|other| other.class.queue < ours.queue);
        let of_queue = self.classes[start..].iter().zip(start..);
        of_queue
            .take_while(|(other, _)| other.class.queue == ours.queue)
            .filter(|(other, _)| other.head.is_some())
            .filter(|(other, _)| {
                let theirs = &other.class.shape;
                ours.shape.meets(theirs) || (!lacks_gpus && !theirs.needs_gpus())
            })
            .map(|(_, position)| position)
            .collect()
    }

    /// Whether a job is the head of its waiting class.
    pub(super) fn is_head(&self, turn: Turn) -> bool {
        let head = self.classes[turn.class].head;
        head.is_some_and(|(_, job)| job == turn.job)
    }

    /// A waiting class of the round.
    pub(super) fn queued(&self, position: usize) -> &QueuedClass<'a> {
        &self.classes[position]
    }

    /// Position of a waiting class.
    pub(super) fn position(&self, class: &WaitingClass) -> Option<usize> {
        let found = self
            .classes
            .binary_search_by(|other| other.class.cmp(class));
        found.ok()
    }

    /// Moves a leaf and its ancestors to where their ranks put them, after what the leaf holds or which jobs
    /// wait in it has changed. Goes up to the root even if a rank stays: an ancestor's share may differ.
    fn settle(&mut self, leaf: usize) {
        let mut node = leaf;
        while let Some(parent) = self.nodes[node].parent {
            let rank = self.rank_of(node);
            let before = std::mem::replace(&mut self.nodes[node].rank, rank);
            if before != rank {
                let siblings = &mut self.nodes[parent].children;
                if let Some(before) = before {
                    siblings.remove(&(before, node));
                }
                if let Some(rank) = rank {
                    siblings.insert((rank, node));
                }
            }
            node = parent;
        }
    }

    /// The rank of a node, given the ranks of its children; `None` if nothing waits in it or below it.
    fn rank_of(&self, position: usize) -> Option<Rank> {
        let node = &self.nodes[position];
        let (is_opportunistic, head) = match node.children.first() {
            Some(((is_opportunistic, _, head), _)) => (*is_opportunistic, *head),
            None => {
                let (is_opportunistic, head) = node.classes.first()?.0;
                (is_opportunistic, self.true_priority(head, &node.config))
            }
        };
        let totals = &self.state.index.totals;
        let share = match node.queue {
            Some(_) => Share::of_queue(&node.holding, &node.config, &node.guarantee, totals),
            None => Share::of_user(&node.holding, totals),
        };
        Some((is_opportunistic, share, head))
    }

    /// Key of the head when compared with heads of other queues.
    fn true_priority(&self, (priority, job): WaitingKey, config: &QueueConfig) -> WaitingKey {
        match config.order {
            QueueOrder::Fifo => {
                let known = self.state.job(job);
                (
                    known.map_or(priority, |job| Reverse(job.spec.priority)),
                    job,
                )
            }
            QueueOrder::Priority | QueueOrder::Fair => (priority, job),
        }
    }
}

impl<'a> Node<'a> {
    /// The parent of all top-level queues.
    fn root() -> Self {
        Self {
            parent: None,
            queue: None,
            config: Arc::default(),
            guarantee: Amounts::default(),
            holding: Holding::default(),
            limited: false,
            children: BTreeSet::new(),
            classes: BTreeSet::new(),
            rank: None,
        }
    }

    fn of_queue(state: &State, parent: usize, name: &'a str) -> Self {
        let queue = state.queues.get(name);
        let counts = queue.filter(|queue| !queue.retired);
        let usage = state.index.usage.get(name);
        Self {
            parent: Some(parent),
            queue: Some(name),
            config: queue.map_or_else(Arc::default, |queue| Arc::clone(&queue.config)),
            guarantee: counts.map_or_else(Amounts::default, |queue| {
                guaranteed(&queue.config.guarantee)
            }),
            holding: Holding {
                past_gpus_milli: past_gpus_milli(state, name),
                ..usage.map_or_else(Holding::default, |usage| held(&usage.total))
            },
            limited: is_limited(state, name),
            ..Self::root()
        }
    }

    fn of_user(state: &State, parent: usize, queue: &str, user: &str) -> Self {
        let of_queue = state.index.usage.get(queue);
        let usage = of_queue.and_then(|usage| usage.users.get(user));
        Self {
            parent: Some(parent),
            holding: Holding {
                past_gpus_milli: past_gpus_milli_of(state, queue, user),
                ..usage.map_or_else(Holding::default, held)
            },
            limited: is_limited(state, queue),
            ..Self::root()
        }
    }
}

/// Positions of nodes by queue and user.
type Leaves<'a> = BTreeMap<(&'a str, Option<&'a str>), usize>;

/// Usage that counts for a queue or user: held and reserved amounts.
fn held(usage: &Usage) -> Holding {
    let mut all = usage.held.clone();
    all.add(&usage.claimed);
    let mut firm = all.clone();
    firm.subtract(&usage.opportunistic);
    firm.subtract(&usage.stopping);
    Holding {
        all,
        firm,
        past_gpus_milli: 0,
    }
}

/// Past usage of a queue, if history counts.
fn past_gpus_milli(state: &State, name: &str) -> u64 {
    let (Some(queue), Some(half_life_ms)) = (state.queues.get(name), state.history_half_life_ms)
    else {
        return 0;
    };
    let usage = state.index.usage.get(name);
    let gpus = usage.map_or(0, |usage| usage.total.held.gpus);
    let history = queue.history.at(state.time, gpus, half_life_ms);
    history.average_gpus_milli(half_life_ms)
}

/// Past usage of a user in a queue, if history counts.
fn past_gpus_milli_of(state: &State, queue: &str, user: &str) -> u64 {
    let known = state.queues.get(queue);
    let history = known.and_then(|queue| queue.user_histories.get(user));
    let (Some(history), Some(half_life_ms)) = (history, state.history_half_life_ms) else {
        return 0;
    };
    let of_queue = state.index.usage.get(queue);
    let usage = of_queue.and_then(|usage| usage.users.get(user));
    let gpus = usage.map_or(0, |usage| usage.held.gpus);
    let history = history.at(state.time, gpus, half_life_ms);
    history.average_gpus_milli(half_life_ms)
}
