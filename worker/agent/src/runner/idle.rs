//! Supervisors whose task has ended and that wait for another one: to give them the next costs a quarter of a new one.
//!
//! Such a supervisor has recorded how its last task ended, has nothing of it left, and ends when its connection is dropped, or
//! its agent dies.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_supervisor::process::ProcessIdentity;
use muster_supervisor::{AgentRequest, TaskDirectory};
use tokio::time::Instant;

use crate::limits::{SUPERVISOR_IDLE, SUPERVISORS_IDLE_MAX};
use crate::runner::conversation::Conversation;

/// Those of one agent.
#[derive(Clone, Debug, Default)]
pub(super) struct IdleSupervisors(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    /// The one that came last is the next to go: the others may be sent away.
    supervisors: Vec<Idle>,
    /// Whether somebody sends them away in time.
    is_watched: bool,
}

#[derive(Debug)]
struct Idle {
    conversation: Conversation,
    process: ProcessIdentity,
    since: Instant,
}

impl IdleSupervisors {
    /// Keeps a supervisor if it has said that it is idle. Any other is hung up on. True: its task's cgroups are for it to see to.
    pub(super) fn take_back(
        &self,
        mut conversation: Conversation,
        process: ProcessIdentity,
    ) -> bool {
        let Some(keeps_cgroups) = conversation.hears_idle() else {
            return false;
        };
        let mut waiting = self.waiting();
        if waiting.supervisors.len() >= SUPERVISORS_IDLE_MAX {
            return keeps_cgroups;
        }
        waiting.supervisors.push(Idle {
            conversation,
            process,
            since: Instant::now(),
        });
        if !waiting.is_watched {
            waiting.is_watched = true;
            tokio::spawn(self.clone().send_away());
        }
        keeps_cgroups
    }

    /// Gives a task's directory, which is written, to one of them; none if there is none. As with one that was forked, its claim
    /// tells whether it has begun.
    pub(super) fn give(
        &self,
        directory: &TaskDirectory,
    ) -> Option<(Conversation, ProcessIdentity)> {
        let request = AgentRequest::Next {
            directory: directory.path().to_owned(),
        };
        loop {
            let idle = self.waiting().supervisors.pop()?;
            // Somebody may have killed it.
            if idle.conversation.say_now(&request) {
                return Some((idle.conversation, idle.process));
            }
        }
    }

    /// Hangs up on those that have waited for long, until there are none.
    async fn send_away(self) {
        loop {
            tokio::time::sleep(SUPERVISOR_IDLE).await;
            let mut waiting = self.waiting();
            waiting
                .supervisors
                .retain(|idle| idle.since.elapsed() < SUPERVISOR_IDLE);
            if waiting.supervisors.is_empty() {
                waiting.is_watched = false;
                return;
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
