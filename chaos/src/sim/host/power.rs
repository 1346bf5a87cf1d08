//! Start, end and pause of a simulated host and of its agent.

use std::time::Duration;

use crate::sim::faults::coverage::Situation;
use crate::sim::host::driver::AgentDriver;
use crate::sim::host::{SimHost, count, lock};
use crate::sim::random_streams::StreamOwner;
use crate::sim::runtime::{NodeId, freeze, kill, spawn_on, thaw};

/// First node number of rebooters: these outlive everything else on the host.
const REBOOT_NODES: u32 = 2_000_000;
/// Downtime of an ordered reboot.
const REBOOT: Duration = Duration::from_secs(2);

/// Power state of a host.
#[derive(Debug, Default)]
pub(super) struct Power {
    is_on: bool,
    /// Number of times the host or its agent was ended: this cancels a reboot in progress.
    cuts: u64,
}

impl SimHost {
    /// Switches the host on.
    pub fn boot(&self) {
        lock(&self.power).is_on = true;
        let life = count(&mut lock(&self.disk).boots);
        let seed = self.seed(StreamOwner::Boot, life);
        spawn_on(self.host_node(), seed, self.supervisors.clone().run());
        self.run_agent();
    }

    /// Starts its agent; if the host is off, starts the host.
    pub fn start_agent(&self) {
        if lock(&self.power).is_on {
            self.run_agent();
        } else {
            self.boot();
        }
    }

    fn run_agent(&self) {
        let life = count(&mut lock(&self.disk).incarnation);
        self.network.node_up(self.agent_node());
        spawn_on(
            self.agent_node(),
            self.seed(StreamOwner::Agent, life),
            AgentDriver::recover(self.clone()).run(),
        );
    }

    /// Pauses everything on it: agent, supervisors and tasks, like a suspended machine.
    pub fn freeze(&self) {
        freeze(self.agent_node());
        freeze(self.host_node());
        self.supervisors.freeze();
    }

    /// Resumes it. Supervisors are resumed first: tasks with an expired lease do nothing more.
    pub fn thaw(&self) {
        self.supervisors.thaw();
        thaw(self.host_node());
        thaw(self.agent_node());
    }

    /// Kills its agent only.
    pub fn kill_agent(&self) {
        lock(&self.power).cuts += 1;
        self.network.node_down(self.agent_node());
        kill(self.agent_node());
    }

    /// Kills everything on it.
    pub fn kill_host(&self) {
        lock(&self.power).is_on = false;
        self.kill_agent();
        kill(self.host_node());
        self.supervisors.die();
    }

    /// Reboots it on order of its agent. If the host or its future agent is killed meanwhile, it stays off
    /// until it is started explicitly.
    pub(super) fn reboot(&self) {
        let host = self.clone();
        let node = NodeId(REBOOT_NODES + self.settings.number);
        let life = lock(&self.disk).boots;
        let seed = self.seed(StreamOwner::Reboot, u32::try_from(life).unwrap_or(u32::MAX));
        spawn_on(node, seed, async move {
            host.reached(Situation::Rebooted);
            host.kill_host();
            let cuts = lock(&host.power).cuts;
            tokio::time::sleep(REBOOT).await;
            if lock(&host.power).cuts == cuts {
                host.boot();
            }
        });
    }
}
