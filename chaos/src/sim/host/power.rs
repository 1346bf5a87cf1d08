//! How a simulated host, and its agent, begin, end and stand still.

use std::time::Duration;

use crate::sim::coverage::Situation;
use crate::sim::draws::Domain;
use crate::sim::host::driver::AgentDriver;
use crate::sim::host::{SimHost, count, lock};
use crate::sim::runtime::{NodeId, freeze, kill, spawn_on, thaw};

/// First node number of what boots a host that was told to: it outlives all that runs there.
const REBOOT_NODES: u32 = 2_000_000;
/// How long a host that boots by order is off.
const REBOOT: Duration = Duration::from_secs(2);

/// Whether a host runs.
#[derive(Debug, Default)]
pub(super) struct Power {
    is_on: bool,
    /// How often somebody ended it, or its agent: a boot that was under way is none any more.
    cuts: u64,
}

impl SimHost {
    /// Switches it on.
    pub fn boot(&self) {
        lock(&self.power).is_on = true;
        let life = count(&mut lock(&self.disk).boots);
        let seed = self.seed(Domain::Boot, life);
        spawn_on(self.host_node(), seed, self.supervisors.clone().run());
        self.run_agent();
    }

    /// Starts its agent; of a host that is off, the host.
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
            self.seed(Domain::Agent, life),
            AgentDriver::recover(self.clone()).run(),
        );
    }

    /// Lets everything on it stand still: agent, supervisors and tasks, as a machine does that is paused.
    pub fn freeze(&self) {
        freeze(self.agent_node());
        freeze(self.host_node());
        self.supervisors.freeze();
    }

    /// Lets it go on. Its supervisors come first: what has no lease any more does nothing more.
    pub fn thaw(&self) {
        self.supervisors.thaw();
        thaw(self.host_node());
        thaw(self.agent_node());
    }

    /// Kills its agent alone.
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

    /// Boots it, as its agent was ordered to. If somebody ends the host, or what would be its agent, meanwhile, it stays off until
    /// they start it.
    pub(super) fn reboot(&self) {
        let host = self.clone();
        let node = NodeId(REBOOT_NODES + self.settings.number);
        let life = lock(&self.disk).boots;
        let seed = self.seed(Domain::Reboot, u32::try_from(life).unwrap_or(u32::MAX));
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
