//! Idle supervisors, which wait for another task after theirs has ended: reusing one costs a quarter of
//! starting a new one.
//!
//! Such a supervisor has recorded how its last task ended, has no process of it left, and exits when its
//! connection is closed or its agent dies.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_supervisor::process::ProcessIdentity;
use muster_supervisor::{AgentRequest, TaskDirectory};
use tokio::time::Instant;

use crate::limits::{SUPERVISOR_IDLE, SUPERVISORS_IDLE_MAX};
use crate::tasks::runner::connection::SupervisorConnection;

/// Idle supervisors of one agent.
#[derive(Clone, Debug, Default)]
pub(super) struct IdleSupervisors(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    /// The last one added is reused first, so that the others can expire.
    supervisors: Vec<Idle>,
    /// Whether a task ends them after their time.
    is_watched: bool,
}

#[derive(Debug)]
struct Idle {
    connection: SupervisorConnection,
    process: ProcessIdentity,
    since: Instant,
}

impl IdleSupervisors {
    /// Keeps a supervisor that reported idle; otherwise closes its connection. True: it removes its task's
    /// cgroups itself.
    pub(super) fn take_back(
        &self,
        mut connection: SupervisorConnection,
        process: ProcessIdentity,
    ) -> bool {
        let Some(keeps_cgroups) = connection.reported_idle() else {
            return false;
        };
        let mut waiting = self.waiting();
        if waiting.supervisors.len() >= SUPERVISORS_IDLE_MAX {
            return keeps_cgroups;
        }
        waiting.supervisors.push(Idle {
            connection,
            process,
            since: Instant::now(),
        });
        if !waiting.is_watched {
            waiting.is_watched = true;
            tokio::spawn(self.clone().expire());
        }
        keeps_cgroups
    }

    /// Assigns a written task directory to an idle supervisor; none if there is none. As with a forked one,
    /// its claim shows whether it has started.
    pub(super) fn give(
        &self,
        directory: &TaskDirectory,
    ) -> Option<(SupervisorConnection, ProcessIdentity)> {
        let request = AgentRequest::Next {
            directory: directory.path().to_owned(),
        };
        loop {
            let idle = self.waiting().supervisors.pop()?;
            // It may have been killed meanwhile.
            if idle.connection.try_send(&request) {
                return Some((idle.connection, idle.process));
            }
        }
    }

    /// Closes connections of supervisors idle for too long, until none are left.
    async fn expire(self) {
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
