//! The end: what became of the task goes on record and to the agent.

use muster_core::command::Exit;

use super::{SuperviseError, Supervisor, during, milliseconds};
use crate::clock::wall_clock;
use crate::directory::ExitRecord;
use crate::limits::{EXIT_RECORD_MS_MAX, KILL_RETRY, LEASE_TICK};
use crate::output::complain;
use crate::protocol::SupervisorMessage;

/// How long a finished supervisor waits for its agent to read the last messages.
const FAREWELL_MS_MAX: u64 = 1_000;

impl Supervisor<'_> {
    /// Records the end, says it, and goes.
    pub(super) fn bury(&mut self, exit: Exit) -> Result<(), SuperviseError> {
        let record = ExitRecord {
            exit: exit.clone(),
            ended_at: wall_clock(),
        };
        self.record_exit(&record)?;
        self.connections
            .tell_agent(&SupervisorMessage::Exited(exit));
        let until = self.clock.now().after(FAREWELL_MS_MAX);
        while self.connections.agent_has_output() && self.clock.now() < until {
            self.connections
                .wait(&[], milliseconds(KILL_RETRY))
                .map_err(during("polling"))?;
        }
        Ok(())
    }

    /// Writes the end down. An agent that hears of it keeps it in its journal: with one, a full disk is only
    /// complained of; without one, it is tried again until one comes or the disk has room.
    fn record_exit(&mut self, record: &ExitRecord) -> Result<(), SuperviseError> {
        let until = self.clock.now().after(EXIT_RECORD_MS_MAX);
        loop {
            let has_agent = self.connections.has_agent();
            let Err(error) = self.directory.record_exit(record, !has_agent) else {
                return Ok(());
            };
            if has_agent {
                complain(&format!("writing exit.json failed: {error}"));
                return Ok(());
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
