//! Changes that a what-if tries out on a fork.

use std::sync::Arc;

use muster_model::command::{Block, BlockTarget, Command, ConfigCommand};
use muster_model::ids::RequestKey;
use muster_model::quota::QueueTree;
use muster_model::spec::JobSpec;
use muster_model::time::TimeMs;

/// Author of the changes in the fork.
const AUTHOR: &str = "what-if";

/// A change that an operator or user considers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Submit a job.
    Submit(Arc<JobSpec>),
    /// Take a host or GPU out of placement; running work there continues.
    Block(BlockTarget),
    /// Take a host, by name, out of placement and move its running work away.
    Drain(String),
    /// Replace the tree of queues.
    Queues(Arc<QueueTree>),
}

impl Change {
    /// Description for users.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Submit(spec) => format!("the submission of job `{}`", spec.name),
            Self::Block(BlockTarget::Host(host)) => format!("the block of host `{host}`"),
            Self::Block(BlockTarget::Gpu(gpu)) => format!("the block of {gpu}"),
            Self::Drain(host) => format!("the drain of host `{host}`"),
            Self::Queues(_) => "the change of the queues".to_owned(),
        }
    }

    /// The command that makes the change.
    pub(super) fn command(&self, request: RequestKey, now: TimeMs) -> Command {
        match self {
            Self::Submit(spec) => Command::SubmitJob {
                request,
                spec: Arc::clone(spec),
            },
            Self::Block(target) => Command::Block {
                request,
                target: target.clone(),
                block: block(None),
                spares_last: false,
            },
            Self::Drain(host) => Command::Block {
                request,
                target: BlockTarget::Host(host.clone()),
                block: block(Some(now)),
                spares_last: false,
            },
            Self::Queues(tree) => Command::Config(ConfigCommand::ConfigureQueues {
                request,
                author: AUTHOR.to_owned(),
                tree: Arc::clone(tree),
            }),
        }
    }
}

fn block(drain_deadline: Option<TimeMs>) -> Block {
    Block {
        reason: "what if".to_owned(),
        author: AUTHOR.to_owned(),
        evidence: String::new(),
        since: TimeMs::default(),
        expires_at: None,
        drain_deadline,
        planned: None,
    }
}
