//! Health faults of hosts: their GPUs, their own sensors, and those of their adapters.

use muster_model::command::GpuHealth;

use crate::sim::faults::host_fault::HostFault;
use crate::sim::faults::nemesis::{ActOutcome, Nemesis, host_name};
use crate::sim::world::World;

impl Nemesis {
    pub(super) fn break_gpu(&mut self, world: &World, host: usize, index: usize, xid: u32) {
        let gpu = world.hosts[host].gpus()[index];
        let health = GpuHealth::Faulted {
            signal: format!("xid-{xid}"),
            detail: String::new(),
        };
        world.hosts[host].set_gpu(gpu, health);
        self.gpus_out.insert((host, gpu));
        let name = host_name(host);
        self.broke(
            world,
            "GPU faulted",
            format_args!("{gpu} of {name}, xid {xid}"),
        );
    }

    pub(super) fn heal_gpus(&mut self, world: &World) {
        for (host, gpu) in std::mem::take(&mut self.gpus_out) {
            world.hosts[host].set_gpu(gpu, GpuHealth::Healthy);
            let name = host_name(host);
            self.repaired(world, "GPU repaired", format_args!("{gpu} of {name}"));
        }
    }

    pub(super) fn break_host(
        &mut self,
        world: &World,
        host: usize,
        port: u32,
        fault: HostFault,
        persists: bool,
    ) {
        world.hosts[host].inject_fault(fault, port, persists);
        let kind = match (fault.readings().is_adapters, persists) {
            (false, false) => "transient host fault",
            (false, true) => "host fault",
            (true, false) => "transient adapter fault",
            (true, true) => "adapter fault",
        };
        let name = host_name(host);
        self.broke(
            world,
            kind,
            format_args!("{fault:?} of {name}, port {port}"),
        );
    }

    pub(super) fn forget_accounts(&mut self, world: &World, host: usize) -> ActOutcome {
        if !world.hosts[host].forget_accounts() {
            return ActOutcome::Skipped("the host has no accounts");
        }
        self.broke(world, "accounts lost", format_args!("{}", host_name(host)))
    }

    pub(super) fn heal_hosts(&mut self, world: &World) {
        for (number, host) in world.hosts.iter().enumerate() {
            if host.heal() {
                self.repaired(
                    world,
                    "host repaired",
                    format_args!("{}", host_name(number)),
                );
            }
        }
    }
}
