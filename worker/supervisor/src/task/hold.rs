//! Gang barrier: a prepared task starts nothing until the agent reports that all members are prepared.

use std::os::fd::AsFd;

use muster_model::command::Exit;
use muster_model::desired::{MASTER_PORT_MIN, MASTER_PORTS};

use crate::lease::Verdict;
use crate::lease::guard::GuardedState;
use crate::limits::LEASE_TICK;
use crate::link::connections::Incoming;
use crate::link::protocol::{AgentRequest, ControlAnswer, SupervisorMessage};
use crate::supervise::{Supervisor, milliseconds, not_started};
use crate::task::port::ReservedPort;

/// What a waiting supervisor has reported to its agent.
pub(crate) struct Prepared {
    port: Option<ReservedPort>,
}

impl Prepared {
    pub(crate) fn message(&self) -> SupervisorMessage {
        SupervisorMessage::Prepared {
            master_port: self.port.as_ref().map(ReservedPort::port),
        }
    }
}

/// First port to try when looking for a free one. The port is released a moment before the task listens on
/// it: supervisors of two clusters on one machine, whose epochs count alike, must not all pick the same.
fn scattered(port: u16) -> u16 {
    let number = u32::from(port) + std::process::id();
    let offset = u16::try_from(number % u32::from(MASTER_PORTS)).unwrap_or(0);
    MASTER_PORT_MIN + offset
}

impl Supervisor<'_> {
    /// Waits until the task's gang is released; returns the rendezvous port. Until then rank 0 reserves one.
    ///
    /// # Errors
    /// The exit of a task that was stopped meanwhile or whose lease expired: it never began.
    pub(crate) fn wait_for_gang(&mut self) -> Result<u16, Exit> {
        self.fetch_image()?;
        let rank = &self.spec.assignment.rank;
        let port = match rank.rank {
            0 => Some(
                ReservedPort::from(scattered(rank.master_port)).map_err(|error| {
                    not_started(&format!("no free port for the gang's rendezvous: {error}"))
                })?,
            ),
            _ => None,
        };
        let prepared = Prepared { port };
        self.connections.send_to_agent(&prepared.message());
        self.prepared = Some(prepared);
        let released = self.wait_for_release();
        self.prepared = None;
        released
    }

    fn wait_for_release(&mut self) -> Result<u16, Exit> {
        loop {
            if let Some(master_port) = self.hold_on(&[])? {
                return Ok(master_port);
            }
        }
    }

    /// Waits for a while, or until one of `others` is readable; returns the rendezvous port if the gang is
    /// released.
    ///
    /// # Errors
    /// The exit of a task that was stopped meanwhile or whose lease expired: it never began.
    pub(crate) fn hold_on(&mut self, others: &[&dyn AsFd]) -> Result<Option<u16>, Exit> {
        let now = self.clock.now();
        if self.lease.verdict(now) == Verdict::LeaseOver {
            return Err(Exit {
                lease_expired: true,
                ..not_started("the lease expired before its gang was released")
            });
        }
        self.pulse.into_iter().for_each(GuardedState::clock_checked);
        self.wake_at(self.lease.deadline());
        let until_over = self.lease.deadline().since(now);
        let timeout_ms = until_over.clamp(1, milliseconds(LEASE_TICK));
        self.connections
            .wait(others, timeout_ms)
            .map_err(|error| not_started(&format!("waiting for the gang failed: {error}")))?;
        // All received messages are handled: a stop request that arrived together with the release is sent
        // only once.
        let mut released = None;
        for incoming in self.connections.receive() {
            match incoming {
                Incoming::AgentConnected => self.send_state(),
                Incoming::Agent(AgentRequest::Begin { master_port }) => {
                    released = Some(master_port);
                }
                Incoming::Agent(request) => self.handle_agent_request(request),
                Incoming::Task(connection, _) => {
                    let answer = ControlAnswer::refused("the task has not begun");
                    self.connections.answer(connection, &answer);
                }
            }
        }
        if self.lease.is_stopping() {
            return Err(not_started("it was stopped before its gang was released"));
        }
        Ok(released)
    }
}
