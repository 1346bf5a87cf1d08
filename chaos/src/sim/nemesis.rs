//! The nemesis: draws faults and repairs from the world's seed, within a budget that lets the cluster
//! recover, so that every failure is a bug.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::command::GpuHealth;
use muster_core::ids::GpuUuid;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::report::Violation;
use super::runtime::NodeId;
use super::world::World;

/// Largest step of a wall clock, in milliseconds: one hour.
const CLOCK_STEP_MS_MAX: i64 = 3_600_000;

/// What is broken now, and what was.
#[derive(Clone, Debug)]
pub struct Nemesis {
    random: ChaCha8Rng,
    agents_down: BTreeSet<usize>,
    hosts_down: BTreeSet<usize>,
    gpus_out: Vec<(usize, GpuUuid)>,
    counts: BTreeMap<&'static str, u64>,
}

impl Nemesis {
    /// A nemesis that draws from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            random: ChaCha8Rng::seed_from_u64(seed),
            agents_down: BTreeSet::new(),
            hosts_down: BTreeSet::new(),
            gpus_out: Vec::new(),
            counts: BTreeMap::new(),
        }
    }

    /// Faults so far, by kind.
    #[must_use]
    pub const fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }

    /// Breaks or repairs one thing.
    pub async fn act(&mut self, world: &mut World) {
        match self.random.random_range(0..20) {
            0..3 => self.kill_replica(world),
            3..5 => self.isolate_replica(world),
            5 => self.cut_one_way(world),
            6..8 => self.kill_agent(world),
            8 => self.kill_host(world),
            9 => self.isolate_host(world),
            10 => self.break_gpu(world),
            11 => self.step_clock(world),
            12..14 => world.network.heal(),
            14..17 => self.start_replicas(world).await,
            _ => self.start_hosts(world),
        }
    }

    /// Repairs everything.
    pub async fn repair(&mut self, world: &mut World) {
        world.network.heal();
        self.start_replicas(world).await;
        self.start_hosts(world);
        for (host, gpu) in std::mem::take(&mut self.gpus_out) {
            world.hosts[host].set_gpu(gpu, GpuHealth::Healthy);
        }
    }

    fn count(&mut self, fault: &'static str) {
        *self.counts.entry(fault).or_default() += 1;
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
            self.count("replica killed");
        }
    }

    fn isolate_replica(&mut self, world: &World) {
        let id = self.draw_replica(world);
        let everybody = everybody(world);
        world.network.isolate(NodeId(id), everybody);
        self.count("replica isolated");
    }

    fn cut_one_way(&mut self, world: &World) {
        let everybody = everybody(world);
        let from = everybody[self.random.random_range(0..everybody.len())];
        let to = NodeId(self.draw_replica(world));
        world.network.cut(from, to);
        self.count("one-way cut");
    }

    fn kill_agent(&mut self, world: &World) {
        let host = self.draw_host(world);
        if !self.hosts_down.contains(&host) && self.agents_down.insert(host) {
            world.hosts[host].kill_agent();
            self.count("agent killed");
        }
    }

    fn kill_host(&mut self, world: &World) {
        let host = self.draw_host(world);
        if self.hosts_down.insert(host) {
            self.agents_down.remove(&host);
            world.hosts[host].kill_host();
            self.count("host killed");
        }
    }

    fn isolate_host(&mut self, world: &World) {
        let host = self.draw_host(world);
        world
            .network
            .isolate(world.hosts[host].agent_node(), everybody(world));
        self.count("host isolated");
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
        self.count("GPU lost");
    }

    fn step_clock(&mut self, world: &World) {
        let id = self.draw_replica(world);
        let by_ms = self
            .random
            .random_range(-CLOCK_STEP_MS_MAX..CLOCK_STEP_MS_MAX);
        world.replicas.nodes[id as usize - 1].clock.step_wall(by_ms);
        self.count("clock stepped");
    }

    async fn start_replicas(&mut self, world: &mut World) {
        for id in 1..=world.replicas_count() {
            if !world.replicas.is_up(id)
                && let Err(error) = world.start_replica(id).await
            {
                world.violate(Violation::Start(error.to_string()));
            }
        }
    }

    fn start_hosts(&mut self, world: &mut World) {
        for host in std::mem::take(&mut self.agents_down) {
            let seed = world.seed();
            world.hosts[host].start_agent(seed);
        }
        for host in std::mem::take(&mut self.hosts_down) {
            let seed = world.seed();
            world.hosts[host].boot(seed);
        }
    }
}

fn everybody(world: &World) -> Vec<NodeId> {
    let replicas = world.replicas.nodes.iter().map(|replica| replica.node);
    let hosts = world.hosts.iter().map(super::host::SimHost::agent_node);
    replicas.chain(hosts).collect()
}
