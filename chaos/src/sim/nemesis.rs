//! The nemesis: draws faults and repairs from the world's seed, within a budget that lets the cluster
//! recover, so that every failure is a bug.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use muster_core::command::GpuHealth;
use muster_core::ids::GpuUuid;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;

use super::report::{Incident, Report, Violation};
use super::runtime::{NodeId, freeze, thaw};
use super::world::World;
use crate::error_chain::chain;

/// Largest step of a wall clock, in milliseconds: one hour.
const CLOCK_STEP_MS_MAX: i64 = 3_600_000;

/// What is broken now, and what was.
#[derive(Clone, Debug)]
pub struct Nemesis {
    random: ChaCha8Rng,
    began: Instant,
    agents_down: BTreeSet<usize>,
    hosts_down: BTreeSet<usize>,
    disks_full: BTreeSet<u32>,
    frozen: BTreeSet<NodeId>,
    gpus_out: Vec<(usize, GpuUuid)>,
    faults: BTreeMap<&'static str, u64>,
    repairs: BTreeMap<&'static str, u64>,
    incidents: Vec<Incident>,
}

impl Nemesis {
    /// A nemesis that draws from `seed`, in a world that begins now.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            random: ChaCha8Rng::seed_from_u64(seed),
            began: Instant::now(),
            agents_down: BTreeSet::new(),
            hosts_down: BTreeSet::new(),
            disks_full: BTreeSet::new(),
            frozen: BTreeSet::new(),
            gpus_out: Vec::new(),
            faults: BTreeMap::new(),
            repairs: BTreeMap::new(),
            incidents: Vec::new(),
        }
    }

    /// Writes down what it did.
    pub fn tell(self, report: &mut Report) {
        report.faults = self.faults;
        report.repairs = self.repairs;
        report.incidents = self.incidents;
    }

    /// Breaks or repairs one thing.
    pub async fn act(&mut self, world: &mut World) {
        match self.random.random_range(0..29) {
            0..3 => self.kill_replica(world),
            3..5 => self.isolate_replica(world),
            5 => self.cut_one_way(world),
            6..8 => self.kill_agent(world),
            8 => self.kill_host(world),
            9 => self.isolate_host(world),
            10 => self.break_gpu(world),
            11..13 => self.step_clock(world),
            13 => self.fill_disk(world),
            14..16 => self.repeat_order(world),
            16 => self.freeze_replica(world),
            17 => self.freeze_agent(world),
            18..20 => self.heal_links(world),
            20..23 => self.start_replicas(world).await,
            23 => self.thaw(),
            24..27 => self.start_agents(world),
            _ => self.start_hosts(world),
        }
    }

    /// Repairs everything.
    pub async fn repair(&mut self, world: &mut World) {
        self.heal_links(world);
        self.thaw();
        self.start_replicas(world).await;
        self.start_agents(world);
        self.start_hosts(world);
        for (host, gpu) in std::mem::take(&mut self.gpus_out) {
            world.hosts[host].set_gpu(gpu, GpuHealth::Healthy);
            self.repaired("GPU healed", format_args!("{gpu} of {}", host_name(host)));
        }
    }

    fn broke(&mut self, fault: &'static str, what: fmt::Arguments<'_>) {
        *self.faults.entry(fault).or_default() += 1;
        self.note(fault, what);
    }

    fn repaired(&mut self, repair: &'static str, what: fmt::Arguments<'_>) {
        *self.repairs.entry(repair).or_default() += 1;
        self.note(repair, what);
    }

    fn note(&mut self, kind: &str, what: fmt::Arguments<'_>) {
        let at_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let what = format!("{kind}: {what}");
        self.incidents.push(Incident { at_ms, what });
    }

    fn draw_replica(&mut self, world: &World) -> u32 {
        self.random.random_range(1..=world.replicas_count())
    }

    fn draw_host(&mut self, world: &World) -> usize {
        self.random.random_range(0..world.hosts.len())
    }

    fn kill_replica(&mut self, world: &mut World) {
        let id = self.draw_replica(world);
        if world.replicas.is_up(id) {
            world.kill_replica(id);
            self.broke("replica killed", format_args!("{id}"));
        }
    }

    fn isolate_replica(&mut self, world: &World) {
        let id = self.draw_replica(world);
        let everybody = everybody(world);
        world.network.isolate(NodeId(id), everybody);
        self.broke("replica isolated", format_args!("{id}"));
    }

    fn cut_one_way(&mut self, world: &World) {
        let everybody = everybody(world);
        let from = everybody[self.random.random_range(0..everybody.len())];
        let to = NodeId(self.draw_replica(world));
        world.network.cut(from, to);
        self.broke(
            "one-way cut",
            format_args!("node {} to replica {}", from.0, to.0),
        );
    }

    fn kill_agent(&mut self, world: &World) {
        let host = self.draw_host(world);
        if !self.hosts_down.contains(&host) && self.agents_down.insert(host) {
            world.hosts[host].kill_agent();
            self.broke("agent killed", format_args!("{}", host_name(host)));
        }
    }

    fn kill_host(&mut self, world: &World) {
        let host = self.draw_host(world);
        if self.hosts_down.insert(host) {
            self.agents_down.remove(&host);
            world.hosts[host].kill_host();
            self.broke("host killed", format_args!("{}", host_name(host)));
        }
    }

    fn isolate_host(&mut self, world: &World) {
        let host = self.draw_host(world);
        world
            .network
            .isolate(world.hosts[host].agent_node(), everybody(world));
        self.broke("host isolated", format_args!("{}", host_name(host)));
    }

    fn break_gpu(&mut self, world: &World) {
        let host = self.draw_host(world);
        let gpus = world.hosts[host].gpus();
        let gpu = gpus[self.random.random_range(0..gpus.len())];
        let health = GpuHealth::Faulted {
            signal: "xid-79".to_owned(),
            detail: String::new(),
        };
        world.hosts[host].set_gpu(gpu, health);
        self.gpus_out.push((host, gpu));
        self.broke("GPU lost", format_args!("{gpu} of {}", host_name(host)));
    }

    fn step_clock(&mut self, world: &World) {
        let by_ms = self
            .random
            .random_range(-CLOCK_STEP_MS_MAX..CLOCK_STEP_MS_MAX);
        if self.random.random_bool(0.5) {
            // A time server went wrong.
            world.hosts.iter().for_each(|host| host.step_clock(by_ms));
            self.broke("clocks stepped", format_args!("all hosts by {by_ms:+} ms"));
            return;
        }
        let id = self.draw_replica(world);
        world.replicas.nodes[id as usize - 1].clock.step_wall(by_ms);
        self.broke(
            "clock stepped",
            format_args!("replica {id} by {by_ms:+} ms"),
        );
    }

    fn fill_disk(&mut self, world: &World) {
        let id = self.draw_replica(world);
        if self.disks_full.insert(id) {
            world.replicas.set_disk_full(id, true);
            self.broke("disk full", format_args!("replica {id}"));
        }
    }

    fn repeat_order(&mut self, world: &World) {
        let host = self.draw_host(world);
        world.hosts[host].repeat_order();
        self.broke("old order repeated", format_args!("{}", host_name(host)));
    }

    fn freeze_replica(&mut self, world: &World) {
        let id = self.draw_replica(world);
        if world.replicas.is_up(id) && self.frozen.insert(NodeId(id)) {
            freeze(NodeId(id));
            self.broke("replica frozen", format_args!("{id}"));
        }
    }

    fn freeze_agent(&mut self, world: &World) {
        let host = self.draw_host(world);
        let node = world.hosts[host].agent_node();
        let is_down = self.agents_down.contains(&host) || self.hosts_down.contains(&host);
        if !is_down && self.frozen.insert(node) {
            freeze(node);
            self.broke("agent frozen", format_args!("{}", host_name(host)));
        }
    }

    fn thaw(&mut self) {
        for node in std::mem::take(&mut self.frozen) {
            thaw(node);
            self.repaired("node thawed", format_args!("{}", node.0));
        }
    }

    fn heal_links(&mut self, world: &World) {
        world.network.heal();
        self.repaired("links healed", format_args!("all"));
    }

    /// Starts what is down; a replica whose disk was full gets space and, because it may have stopped, a new
    /// start.
    async fn start_replicas(&mut self, world: &mut World) {
        for id in std::mem::take(&mut self.disks_full) {
            world.replicas.set_disk_full(id, false);
            if world.replicas.is_up(id) {
                world.kill_replica(id);
            }
            self.repaired("disk freed", format_args!("replica {id}"));
        }
        for id in 1..=world.replicas_count() {
            if world.replicas.is_up(id) {
                continue;
            }
            match world.start_replica(id).await {
                Ok(()) => self.repaired("replica restarted", format_args!("{id}")),
                Err(error) => {
                    let refusal = format!("({id}) did not start: {}", chain(&error));
                    world.judges.violate(Violation::Replica(refusal));
                }
            }
        }
    }

    fn start_agents(&mut self, world: &mut World) {
        for host in std::mem::take(&mut self.agents_down) {
            let seed = world.seed();
            world.hosts[host].start_agent(seed);
            self.repaired("agent restarted", format_args!("{}", host_name(host)));
        }
    }

    fn start_hosts(&mut self, world: &mut World) {
        for host in std::mem::take(&mut self.hosts_down) {
            let seed = world.seed();
            world.hosts[host].boot(seed);
            self.repaired("host booted", format_args!("{}", host_name(host)));
        }
    }
}

fn host_name(host: usize) -> String {
    format!("node{host:02}")
}

fn everybody(world: &World) -> Vec<NodeId> {
    let replicas = world.replicas.nodes.iter().map(|replica| replica.node);
    let hosts = world.hosts.iter().map(super::host::SimHost::agent_node);
    replicas.chain(hosts).collect()
}
