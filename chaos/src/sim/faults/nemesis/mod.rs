//! The nemesis of a simulated world: executes the fault plan within a budget that lets the cluster recover,
//! so that every failure is a bug.

mod disks;
mod hosts;
mod links;
mod loss;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use muster_model::ids::GpuUuid;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error_chain::chain;
use crate::sim::clients::CLIENT_NODES;
use crate::sim::faults::fault::{Fault, NodeRef, ScheduledFault};
use crate::sim::host::SimHost;
use crate::sim::operator::MembershipChange;
use crate::sim::record::{Scene, SceneKind};
use crate::sim::results::report::{Incident, Report, Violation};
use crate::sim::runtime::{NodeId, freeze, thaw};
use crate::sim::scale::Tempo;
use crate::sim::world::World;

/// Active faults, and counts of past ones.
#[derive(Debug)]
pub struct Nemesis {
    began: Instant,
    agents_down: BTreeSet<usize>,
    hosts_down: BTreeSet<usize>,
    hosts_frozen: BTreeSet<usize>,
    /// Replicas with a full, failing or decayed disk, and those with a stalled one.
    disks_faulty: BTreeSet<u32>,
    disks_stalled: BTreeSet<u32>,
    frozen: BTreeSet<NodeId>,
    gpus_out: BTreeSet<(usize, GpuUuid)>,
    faults: BTreeMap<&'static str, u64>,
    repairs: BTreeMap<&'static str, u64>,
    skipped: u64,
    /// The newest backup, and the machines lost with all their data.
    backup: Option<loss::Saved>,
    replicas_lost: BTreeSet<u32>,
    /// Membership changes in progress by operators.
    errands: Vec<oneshot::Receiver<()>>,
    incidents: Vec<Incident>,
}

/// Outcome of a fault.
pub(super) enum ActOutcome {
    /// It was executed.
    Yes,
    /// It could not be executed, for this reason.
    Skipped(&'static str),
}

impl Nemesis {
    /// The nemesis of a new world.
    #[must_use]
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
            agents_down: BTreeSet::new(),
            hosts_down: BTreeSet::new(),
            hosts_frozen: BTreeSet::new(),
            disks_faulty: BTreeSet::new(),
            disks_stalled: BTreeSet::new(),
            frozen: BTreeSet::new(),
            gpus_out: BTreeSet::new(),
            faults: BTreeMap::new(),
            repairs: BTreeMap::new(),
            skipped: 0,
            backup: None,
            replicas_lost: BTreeSet::new(),
            errands: Vec::new(),
            incidents: Vec::new(),
        }
    }

    /// Writes its counts into the report.
    pub fn write_counts(self, report: &mut Report) {
        report.faults = self.faults;
        report.repairs = self.repairs;
        report.skipped = self.skipped;
        report.incidents = self.incidents;
    }

    /// Executes a fault. If its target is down or missing, the fault is recorded as skipped.
    pub async fn perform(&mut self, world: &mut World, scheduled: &ScheduledFault) {
        if let ActOutcome::Skipped(why) = self.carry_out(world, &scheduled.fault).await {
            self.skipped += 1;
            let ScheduledFault { number, fault, .. } = scheduled;
            self.note(
                world,
                "skipped",
                format_args!("fault {number} {fault:?}: {why}"),
            );
        }
    }

    async fn carry_out(&mut self, world: &mut World, fault: &Fault) -> ActOutcome {
        if !exists(world, fault) {
            return ActOutcome::Skipped("its target does not exist");
        }
        if disk_of(fault).is_some_and(|id| self.replicas_lost.contains(&id)) {
            return ActOutcome::Skipped("its machine is lost");
        }
        if disk_of(fault).is_some_and(|id| world.replicas.life(id) == 0) {
            return ActOutcome::Skipped("no replica has run on that machine");
        }
        match fault {
            Fault::KillReplica(id) => return self.kill_replica(world, *id),
            Fault::Isolate(node) => return self.isolate(world, *node),
            Fault::Cut { from, to } => return self.cut(world, *from, *to),
            Fault::DegradeLink { from, to } => return self.degrade_link(world, *from, *to),
            Fault::KillAgent(host) => return self.kill_agent(world, *host as usize),
            Fault::KillHost(host) => return self.kill_host(world, *host as usize),
            Fault::BreakGpu { host, gpu, xid } => {
                self.break_gpu(world, *host as usize, *gpu as usize, *xid);
            }
            Fault::HostFaulted {
                host,
                port,
                fault,
                persists,
            } => self.break_host(world, *host as usize, *port, *fault, *persists),
            Fault::StepHostClocks { by_ms } => self.step_host_clocks(world, *by_ms),
            Fault::StepReplicaClock { replica, by_ms } => {
                self.step_replica_clock(world, *replica, *by_ms);
            }
            Fault::FillDisk(id) => return self.fill_disk(world, *id),
            Fault::FailDisk(id) => return self.fail_disk(world, *id),
            Fault::StallDisk(id) => return self.stall_disk(world, *id),
            Fault::CorruptDisk { replica, at } => return self.corrupt_disk(world, *replica, *at),
            Fault::RepeatOrder(host) => self.repeat_order(world, *host as usize),
            Fault::ForgetAccounts(host) => return self.forget_accounts(world, *host as usize),
            Fault::AddReplica => return self.bring_replica(world, MembershipChange::Add).await,
            Fault::RemoveReplica(id) => return self.remove_replica(world, *id),
            Fault::ReplaceReplica(old) => {
                let replace = |new| MembershipChange::Replace { old: *old, new };
                return self.bring_replica(world, replace).await;
            }
            Fault::BackUp => return self.back_up(world).await,
            Fault::LoseReplicas => return self.lose_replicas(world).await,
            Fault::FreezeReplica(id) => return self.freeze_replica(world, *id),
            Fault::FreezeAgent(host) => return self.freeze_agent(world, *host as usize),
            Fault::FreezeHost(host) => return self.freeze_host(world, *host as usize),
            Fault::HealLinks => self.heal_links(world),
            Fault::StartReplicas => self.start_replicas(world).await,
            Fault::Thaw => self.thaw(world),
            Fault::StartAgents => self.start_agents(world),
            Fault::StartHosts => self.start_hosts(world),
            Fault::HealGpus => self.heal_gpus(world),
            Fault::HealHosts => self.heal_hosts(world),
        }
        if matches!(fault, Fault::HealGpus | Fault::HealHosts) && gives_back(world) {
            world.give_back().await;
        }
        ActOutcome::Yes
    }

    /// Repairs everything. Hosts are repaired while their agents are still down, so that these must know
    /// the faults from before.
    pub async fn repair(&mut self, world: &mut World) {
        self.heal_links(world);
        self.thaw(world);
        self.start_replicas(world).await;
        self.heal_hosts(world);
        self.start_agents(world);
        self.start_hosts(world);
        self.heal_gpus(world);
    }

    fn broke(
        &mut self,
        world: &World,
        fault: &'static str,
        what: fmt::Arguments<'_>,
    ) -> ActOutcome {
        *self.faults.entry(fault).or_default() += 1;
        self.note(world, fault, what);
        ActOutcome::Yes
    }

    fn repaired(&mut self, world: &World, repair: &'static str, what: fmt::Arguments<'_>) {
        *self.repairs.entry(repair).or_default() += 1;
        self.note(world, repair, what);
    }

    fn note(&mut self, world: &World, kind: &str, what: fmt::Arguments<'_>) {
        let at_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let what = format!("{kind}: {what}");
        world.checkers.scene(|| Scene::new(SceneKind::Fault, &what));
        self.incidents.push(Incident { at_ms, what });
    }

    fn kill_replica(&mut self, world: &mut World, id: u32) -> ActOutcome {
        if !world.replicas.is_up(id) {
            return ActOutcome::Skipped("it is down");
        }
        world.kill_replica(id);
        self.broke(world, "replica killed", format_args!("{id}"))
    }

    fn kill_agent(&mut self, world: &World, host: usize) -> ActOutcome {
        if self.hosts_down.contains(&host) || self.agents_down.contains(&host) {
            return ActOutcome::Skipped("it is down");
        }
        if self.hosts_frozen.contains(&host) {
            return ActOutcome::Skipped("its host is paused");
        }
        self.agents_down.insert(host);
        world.hosts[host].kill_agent();
        self.broke(world, "agent killed", format_args!("{}", host_name(host)))
    }

    fn kill_host(&mut self, world: &World, host: usize) -> ActOutcome {
        if !self.hosts_down.insert(host) {
            return ActOutcome::Skipped("it is down");
        }
        self.agents_down.remove(&host);
        self.hosts_frozen.remove(&host);
        world.hosts[host].kill_host();
        self.broke(world, "host killed", format_args!("{}", host_name(host)))
    }

    fn step_host_clocks(&mut self, world: &World, by_ms: i64) {
        world.hosts.iter().for_each(|host| host.step_clock(by_ms));
        self.broke(
            world,
            "clocks of hosts stepped",
            format_args!("by {by_ms:+} ms"),
        );
    }

    fn step_replica_clock(&mut self, world: &World, id: u32, by_ms: i64) {
        world.replicas.nodes[id as usize - 1].clock.step_wall(by_ms);
        let what = format_args!("replica {id} by {by_ms:+} ms");
        self.broke(world, "clock of a replica stepped", what);
    }

    fn repeat_order(&mut self, world: &World, host: usize) {
        world.hosts[host].repeat_order();
        self.broke(
            world,
            "old order repeated",
            format_args!("{}", host_name(host)),
        );
    }

    /// Takes the completion signals of all membership changes.
    pub fn errands(&mut self) -> Vec<oneshot::Receiver<()>> {
        std::mem::take(&mut self.errands)
    }

    /// Starts a replica on the next unused machine, and an operator that adds it.
    async fn bring_replica(
        &mut self,
        world: &mut World,
        what: impl Fn(u32) -> MembershipChange,
    ) -> ActOutcome {
        let Some(id) = self.next_machine(world) else {
            return ActOutcome::Skipped("no machine is left for a new replica");
        };
        if let Err(error) = world.start_replica(id).await {
            let refusal = format!("({id}) did not start: {}", chain(&error));
            world.checkers.violate(Violation::Replica(refusal));
            return ActOutcome::Skipped("it could not start");
        }
        self.send(world, what(id))
    }

    /// The first machine after all that ever had a replica: ids are not reused. Some machines are reserved
    /// for a restored group.
    fn next_machine(&self, world: &World) -> Option<u32> {
        let last = if self.replicas_lost.is_empty() {
            world.machines_of_before()
        } else {
            world.replicas_count()
        };
        let next = last_used(world) + 1;
        (next <= last).then_some(next)
    }

    fn remove_replica(&mut self, world: &World, id: u32) -> ActOutcome {
        if world.replicas.life(id) == 0 {
            return ActOutcome::Skipped("it was never a replica");
        }
        self.send(world, MembershipChange::Remove(id))
    }

    fn send(&mut self, world: &World, errand: MembershipChange) -> ActOutcome {
        let number = u32::try_from(self.errands.len()).unwrap_or(u32::MAX);
        self.errands.push(world.send_operator(number, errand));
        self.broke(world, "replicas changed", format_args!("{errand:?}"))
    }

    fn freeze_replica(&mut self, world: &World, id: u32) -> ActOutcome {
        if !world.replicas.is_up(id) || !self.frozen.insert(NodeId(id)) {
            return ActOutcome::Skipped("it is down or paused");
        }
        freeze(NodeId(id));
        self.broke(world, "replica frozen", format_args!("{id}"))
    }

    fn freeze_agent(&mut self, world: &World, host: usize) -> ActOutcome {
        let node = world.hosts[host].agent_node();
        if self.is_agent_away(host) || !self.frozen.insert(node) {
            return ActOutcome::Skipped("it is down or paused");
        }
        freeze(node);
        self.broke(world, "agent frozen", format_args!("{}", host_name(host)))
    }

    fn freeze_host(&mut self, world: &World, host: usize) -> ActOutcome {
        let machine = &world.hosts[host];
        let is_still = self.frozen.contains(&machine.agent_node());
        if is_still || self.is_agent_away(host) {
            return ActOutcome::Skipped("it or its agent is down or paused");
        }
        self.hosts_frozen.insert(host);
        machine.freeze();
        self.broke(world, "host frozen", format_args!("{}", host_name(host)))
    }

    fn is_agent_away(&self, host: usize) -> bool {
        let away = [&self.agents_down, &self.hosts_down, &self.hosts_frozen];
        away.iter().any(|hosts| hosts.contains(&host))
    }

    fn thaw(&mut self, world: &World) {
        for node in std::mem::take(&mut self.frozen) {
            thaw(node);
            self.repaired(world, "node thawed", format_args!("{}", node.0));
        }
        for host in std::mem::take(&mut self.hosts_frozen) {
            world.hosts[host].thaw();
            self.repaired(world, "host thawed", format_args!("{}", host_name(host)));
        }
    }

    /// Starts everything that is down. A replica whose disk was full, failing or decayed gets a repaired
    /// disk with its contents and, because it may have stopped, is restarted.
    async fn start_replicas(&mut self, world: &mut World) {
        self.repair_disks(world).await;
        for id in 1..=world.replicas_count() {
            let is_there = world.replicas.life(id) > 0 && !self.replicas_lost.contains(&id);
            if world.replicas.is_up(id) || !is_there {
                continue;
            }
            match world.start_replica(id).await {
                Ok(()) => self.repaired(world, "replica restarted", format_args!("{id}")),
                Err(error) => {
                    let refusal = format!("({id}) did not start: {}", chain(&error));
                    world.checkers.violate(Violation::Replica(refusal));
                }
            }
        }
    }

    fn start_agents(&mut self, world: &World) {
        for host in std::mem::take(&mut self.agents_down) {
            world.hosts[host].start_agent();
            self.repaired(
                world,
                "agent restarted",
                format_args!("{}", host_name(host)),
            );
        }
    }

    fn start_hosts(&mut self, world: &World) {
        for host in std::mem::take(&mut self.hosts_down) {
            world.hosts[host].boot();
            self.repaired(world, "host booted", format_args!("{}", host_name(host)));
        }
    }
}

impl Default for Nemesis {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether all targets of a fault exist: a script may not match the cluster.
fn exists(world: &World, fault: &Fault) -> bool {
    let has_replica = |id: u32| (1..=world.replicas_count()).contains(&id);
    let has_host = |host: u32| (host as usize) < world.hosts.len();
    let has_node = |node: NodeRef| match node {
        NodeRef::Replica(id) => has_replica(id),
        NodeRef::Agent(host) => has_host(host),
        NodeRef::User(number) => number < world.users(),
    };
    match fault {
        Fault::KillReplica(id)
        | Fault::FillDisk(id)
        | Fault::FailDisk(id)
        | Fault::StallDisk(id)
        | Fault::FreezeReplica(id)
        | Fault::RemoveReplica(id)
        | Fault::ReplaceReplica(id) => has_replica(*id),
        Fault::StepReplicaClock { replica, .. } | Fault::CorruptDisk { replica, .. } => {
            has_replica(*replica)
        }
        Fault::Isolate(node) => has_node(*node),
        Fault::Cut { from, to } | Fault::DegradeLink { from, to } => {
            has_node(*from) && has_node(*to)
        }
        Fault::KillAgent(host)
        | Fault::KillHost(host)
        | Fault::RepeatOrder(host)
        | Fault::ForgetAccounts(host)
        | Fault::FreezeAgent(host)
        | Fault::FreezeHost(host)
        | Fault::HostFaulted { host, .. } => has_host(*host),
        Fault::BreakGpu { host, gpu, .. } => {
            let machine = world.hosts.get(*host as usize);
            machine.is_some_and(|machine| (*gpu as usize) < machine.gpus().len())
        }
        Fault::StepHostClocks { .. }
        | Fault::AddReplica
        | Fault::BackUp
        | Fault::LoseReplicas
        | Fault::HealLinks
        | Fault::StartReplicas
        | Fault::Thaw
        | Fault::StartAgents
        | Fault::StartHosts
        | Fault::HealGpus
        | Fault::HealHosts => true,
    }
}

/// Whether repaired components are unblocked at once: in a long world nothing would remain in placement
/// otherwise. In a short one the rules themselves have to unblock them.
fn gives_back(world: &World) -> bool {
    world.options.scale.tempo == Tempo::Production
}

/// Highest replica id ever used.
fn last_used(world: &World) -> u32 {
    let mut machines = (1..=world.replicas_count()).rev();
    machines
        .find(|id| world.replicas.life(*id) > 0)
        .unwrap_or_default()
}

/// The replica whose disk a fault hits.
const fn disk_of(fault: &Fault) -> Option<u32> {
    match fault {
        Fault::FillDisk(id) | Fault::FailDisk(id) | Fault::StallDisk(id) => Some(*id),
        Fault::CorruptDisk { replica, .. } => Some(*replica),
        _ => None,
    }
}

fn host_name(host: usize) -> String {
    format!("node{host:02}")
}

const fn node_of(node: NodeRef) -> NodeId {
    match node {
        NodeRef::Replica(id) => NodeId(id),
        NodeRef::Agent(host) => SimHost::agent_node_of(host),
        NodeRef::User(number) => NodeId(CLIENT_NODES + number),
    }
}

fn all_nodes(world: &World) -> Vec<NodeId> {
    let replicas = world.replicas.nodes.iter().map(|replica| replica.node);
    let hosts = world.hosts.iter().map(SimHost::agent_node);
    let users = (0..world.users()).map(|number| NodeId(CLIENT_NODES + number));
    replicas.chain(hosts).chain(users).collect()
}
