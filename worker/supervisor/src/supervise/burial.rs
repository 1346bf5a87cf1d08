//! The end: what became of the task goes on record and to the agent.

use muster_model::command::Exit;

use crate::clock::wall_clock;
use crate::container::ContainerEnd;
use crate::directory::ExitRecord;
use crate::limits::{EXIT_RECORD_MS_MAX, KILL_RETRY, LEASE_TICK};
use crate::output::complain;
use crate::protocol::SupervisorMessage;
use crate::supervise::{SuperviseError, Supervisor, during, milliseconds};

/// How long a finished supervisor waits for its agent to read the last messages.
const FAREWELL_MS_MAX: u64 = 1_000;

impl Supervisor<'_> {
    /// Whether the task was a process that was started, ended by itself, and had nothing that others have not.
    pub(super) fn was_plain(&self) -> bool {
        let assignment = &self.spec.assignment;
        let execution = &assignment.execution;
        let is_special = assignment.barrier
            || execution.container.is_some()
            || !execution.secrets.is_empty()
            || self.execs.were_opened();
        !is_special && self.stopping.is_none() && !self.lease.is_stopping() && self.broken.is_none()
    }

    /// What the end of a container's runner cannot say.
    pub(super) fn container_end(&self) -> ContainerEnd {
        match self.spec.assignment.execution.container {
            Some(_) => ContainerEnd::read(self.directory),
            None => ContainerEnd::default(),
        }
    }

    /// Records the end and says it. True: this process waits for the next task; the end is on record, so nobody will ever look
    /// for the supervisor of this one. It may if it has `kept` its cgroups for that, or not.
    pub(super) fn bury(&mut self, exit: Exit, kept: Option<bool>) -> Result<bool, SuperviseError> {
        let record = ExitRecord {
            exit: exit.clone(),
            ended_at: wall_clock(),
        };
        let is_recorded = self.record_exit(&record)?;
        let goes_on = kept.is_some() && is_recorded && self.connections.has_first_agent();
        let mut words = vec![SupervisorMessage::Exited(exit)];
        let idle = kept.map(|keeps_cgroups| SupervisorMessage::Idle { keeps_cgroups });
        words.extend(idle.filter(|_| goes_on));
        self.connections.tell_agent_all(&words);
        let until = self.clock.now().after(FAREWELL_MS_MAX);
        while self.connections.agent_has_output() && self.clock.now() < until {
            self.connections
                .wait(&[], milliseconds(KILL_RETRY))
                .map_err(during("polling"))?;
        }
        Ok(goes_on && !self.connections.agent_has_output())
    }

    /// Writes the end down; false if it could not be. An agent that hears of it keeps it in its journal: with one, a full disk is only
    /// complained of; without one, it is tried again until one comes or the disk has room.
    fn record_exit(&mut self, record: &ExitRecord) -> Result<bool, SuperviseError> {
        let until = self.clock.now().after(EXIT_RECORD_MS_MAX);
        loop {
            let has_agent = self.connections.has_agent();
            let Err(error) = self.directory.record_exit(record, !has_agent) else {
                return Ok(true);
            };
            if has_agent {
                complain(&format!("writing exit.json failed: {error}"));
                return Ok(false);
            }
            if self.clock.now() >= until {
                return Err(during("writing exit.json")(error));
            }
            self.connections
                .wait(&[], milliseconds(LEASE_TICK))
                .map_err(during("polling"))?;
            // Nothing is left to be asked for: who connects is told the end.
            self.connections.receive();
        }
    }
}
