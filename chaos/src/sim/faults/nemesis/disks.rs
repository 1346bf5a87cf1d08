//! Faults of the replicas' disks, and the required reactions of the replicas.

use crate::error_chain::chain;
use crate::sim::faults::coverage::Situation;
use crate::sim::faults::nemesis::{ActOutcome, Nemesis};
use crate::sim::replicas::StartError;
use crate::sim::results::report::Violation;
use crate::sim::world::World;

impl Nemesis {
    pub(super) fn fill_disk(&mut self, world: &World, id: u32) -> ActOutcome {
        if !self.disks_faulty.insert(id) {
            return ActOutcome::Skipped("the disk is already faulty");
        }
        world.replicas.disk(id).set_condition(|now| now.full = true);
        self.broke(world, "disk full", format_args!("replica {id}"))
    }

    pub(super) fn fail_disk(&mut self, world: &World, id: u32) -> ActOutcome {
        if !self.disks_faulty.insert(id) {
            return ActOutcome::Skipped("the disk is already faulty");
        }
        let disk = world.replicas.disk(id);
        disk.set_condition(|now| now.failing = true);
        self.broke(world, "disk failing", format_args!("replica {id}"))
    }

    pub(super) fn stall_disk(&mut self, world: &World, id: u32) -> ActOutcome {
        if !self.disks_stalled.insert(id) {
            return ActOutcome::Skipped("the disk is already stalled");
        }
        let disk = world.replicas.disk(id);
        disk.set_condition(|now| now.stalled = true);
        self.broke(world, "disk stalled", format_args!("replica {id}"))
    }

    pub(super) fn corrupt_disk(&mut self, world: &World, id: u32, at: u32) -> ActOutcome {
        if self.disks_faulty.contains(&id) {
            return ActOutcome::Skipped("the disk is already faulty");
        }
        if !world.replicas.disk(id).decay(at) {
            return ActOutcome::Skipped("the disk is empty");
        }
        self.disks_faulty.insert(id);
        self.broke(world, "disk decayed", format_args!("replica {id}"))
    }

    /// Repairs all disks. First checks that each replica with an unwritable log has stopped, and that none
    /// starts on a damaged log or snapshot.
    pub(super) async fn repair_disks(&mut self, world: &mut World) {
        for id in std::mem::take(&mut self.disks_stalled) {
            let disk = world.replicas.disk(id);
            disk.set_condition(|now| now.stalled = false);
            let reached = Situation::DiskStalled;
            world.checkers.with(|seen| seen.coverage.reached(reached));
            self.repaired(world, "disk resumed", format_args!("replica {id}"));
        }
        for id in std::mem::take(&mut self.disks_faulty) {
            judge_failed(world, id);
            if world.replicas.is_up(id) {
                world.kill_replica(id);
            }
            let disk = world.replicas.disk(id).clone();
            disk.set_condition(|now| (now.full, now.failing) = (false, false));
            if disk.is_damaged() {
                judge_damaged(world, id).await;
            }
            disk.restore();
            self.repaired(world, "disk replaced", format_args!("replica {id}"));
        }
    }
}

/// Checks that a replica whose log could not be written has stopped: the contents of its disk are unknown.
fn judge_failed(world: &World, id: u32) {
    if !world.replicas.nodes[id as usize - 1].failed_long_ago() {
        return;
    }
    let up = world.replicas.registry.up();
    let own = up.into_iter().find(|(node, _)| node.0 == id);
    if own.is_some_and(|(_, handle)| !handle.leadership().borrow().stopped) {
        let text = format!("({id}) keeps running although its log could not be written");
        world.checkers.violate(Violation::Replica(text));
    }
}

/// Checks that a replica refuses a damaged disk; one killed while it opened the disk refused it as well.
async fn judge_damaged(world: &mut World, id: u32) {
    match world.start_replica(id).await {
        Err(StartError::Open(_)) => {
            let reached = Situation::DamageFound;
            world.checkers.with(|seen| seen.coverage.reached(reached));
        }
        Err(error @ StartError::Killed) => {
            let text = format!("({id}) did not start: {}", chain(&error));
            world.checkers.violate(Violation::Replica(text));
        }
        Ok(()) => {
            if world.replicas.disk(id).is_damaged() {
                let text = format!("({id}) started on a damaged disk");
                world.checkers.violate(Violation::Replica(text));
            }
            world.kill_replica(id);
        }
    }
}
