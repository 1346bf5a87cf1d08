//! The tree of queues and the topology, each replaced as a whole.

use std::sync::Arc;

use crate::apply::Step;
use crate::apply::fingerprint::Request;
use crate::event::EventKind;
use crate::ids::RequestId;
use crate::quota::{self, QueueTree};
use crate::rejection::Rejection;
use crate::state::{Answer, Queue, State};
use crate::topology::{self, Topology};

impl Step<'_> {
    pub(super) fn configure_queues(
        &mut self,
        request: RequestId,
        author: &str,
        tree: &Arc<QueueTree>,
    ) -> Result<Answer, Rejection> {
        let broken = quota::validate(tree, &self.state.topology);
        if !broken.is_empty() {
            return Err(Rejection::InvalidConfiguration(broken));
        }
        self.once(request, &Request::ConfigureQueues(author, tree), |step| {
            for (name, config) in &tree.queues {
                let queue = Queue::configured(name, Arc::new(config.clone()));
                step.state
                    .queues
                    .insert(Arc::clone(&queue.name), Arc::new(queue));
            }
            let State {
                index,
                queues,
                jobs,
                ..
            } = &mut *step.state;
            index.line_up_again(queues, jobs);
            step.state.history_half_life_ms = tree.history_half_life_ms;
            step.emit(EventKind::QueuesConfigured {
                author: author.to_owned(),
                queues: tree.queues.keys().cloned().collect(),
            });
            Ok(Answer::Done)
        })
    }

    pub(super) fn set_topology(
        &mut self,
        request: RequestId,
        author: &str,
        topology: &Arc<Topology>,
    ) -> Result<Answer, Rejection> {
        let broken = topology::validate(topology);
        if !broken.is_empty() {
            return Err(Rejection::InvalidConfiguration(broken));
        }
        self.once(request, &Request::SetTopology(author, topology), |step| {
            step.state.topology = Arc::clone(topology);
            step.state.index.place_hosts(topology, &step.state.hosts);
            step.emit(EventKind::TopologySet {
                author: author.to_owned(),
            });
            Ok(Answer::Done)
        })
    }
}
