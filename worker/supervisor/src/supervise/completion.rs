//! Completion of a task: its exit is recorded and reported to the agent.

use muster_model::command::Exit;

use crate::container::ContainerEnd;
use crate::lease::clock::wall_clock;
use crate::limits::{EXIT_RECORD_MS_MAX, KILL_RETRY, LEASE_TICK};
use crate::link::protocol::SupervisorMessage;
use crate::output::log_error;
use crate::supervise::{SuperviseError, Supervisor, during, milliseconds};
use crate::task::directory::ExitRecord;

/// How long a finished supervisor waits for its agent to read the last messages.
const LAST_MESSAGES_MS_MAX: u64 = 1_000;

impl Supervisor<'_> {
    /// Whether the task was a process that was started, ended by itself, and had no special resources.
    pub(super) fn was_plain(&self) -> bool {
        let assignment = &self.spec.assignment;
        let execution = &assignment.execution;
        let is_special = assignment.barrier
            || execution.container.is_some()
            || !execution.secrets.is_empty()
            || self.execs.were_opened();
        !is_special && self.stopping.is_none() && !self.lease.is_stopping() && self.broken.is_none()
    }

    /// End details that the exit status of a container's runner cannot carry.
    pub(super) fn container_end(&self) -> ContainerEnd {
        match self.spec.assignment.execution.container {
            Some(_) => ContainerEnd::read(self.directory),
            None => ContainerEnd::default(),
        }
    }

    /// Records the exit and reports it. True if this process waits for the next task: the exit is recorded,
    /// so no agent will look for the supervisor of this one. It may wait if `kept` is given, which states
    /// whether it has kept its cgroups.
    pub(super) fn complete(
        &mut self,
        exit: Exit,
        kept: Option<bool>,
    ) -> Result<bool, SuperviseError> {
        let record = ExitRecord {
            exit: exit.clone(),
            ended_at: wall_clock(),
        };
        let is_recorded = self.record_exit(&record)?;
        let is_reused = kept.is_some() && is_recorded && self.connections.has_first_agent();
        let mut messages = vec![SupervisorMessage::Exited(exit)];
        let idle = kept.map(|keeps_cgroups| SupervisorMessage::Idle { keeps_cgroups });
        messages.extend(idle.filter(|_| is_reused));
        self.connections.send_all_to_agent(&messages);
        let until = self.clock.now().after(LAST_MESSAGES_MS_MAX);
        while self.connections.agent_has_output() && self.clock.now() < until {
            self.connections
                .wait(&[], milliseconds(KILL_RETRY))
                .map_err(during("polling"))?;
        }
        Ok(is_reused && !self.connections.agent_has_output())
    }

    /// Records the exit; false if that failed. An agent that receives it keeps it in its journal: with an
    /// agent, a full disk is only logged; without one, the write is retried until an agent connects or the
    /// disk has room.
    fn record_exit(&mut self, record: &ExitRecord) -> Result<bool, SuperviseError> {
        let until = self.clock.now().after(EXIT_RECORD_MS_MAX);
        loop {
            let has_agent = self.connections.has_agent();
            let Err(error) = self.directory.record_exit(record, !has_agent) else {
                return Ok(true);
            };
            if has_agent {
                log_error(&format!("writing exit.json failed: {error}"));
                return Ok(false);
            }
            if self.clock.now() >= until {
                return Err(during("writing exit.json")(error));
            }
            self.connections
                .wait(&[], milliseconds(LEASE_TICK))
                .map_err(during("polling"))?;
            // Requests are ignored now: an agent that connects is sent the exit.
            self.connections.receive();
        }
    }
}
