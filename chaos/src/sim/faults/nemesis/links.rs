//! Network faults. Links of a machine without a replica are cut as well, since one may be started there
//! before links are healed; but this is not counted as a fault.

use crate::sim::faults::fault::NodeRef;
use crate::sim::faults::nemesis::{ActOutcome, Nemesis, all_nodes, node_of};
use crate::sim::world::World;

/// Reason why a fault of a link has no effect.
const VACANT: &str = "no replica is on that machine";

impl Nemesis {
    pub(super) fn isolate(&mut self, world: &World, node: NodeRef) -> ActOutcome {
        world.network.isolate(node_of(node), all_nodes(world));
        if self.is_vacant(world, node) {
            return ActOutcome::Skipped(VACANT);
        }
        let fault = match node {
            NodeRef::Replica(_) => "replica isolated",
            NodeRef::Agent(_) => "host isolated",
            NodeRef::User(_) => "user isolated",
        };
        self.broke(world, fault, format_args!("{node}"))
    }

    pub(super) fn cut(&mut self, world: &World, from: NodeRef, to: NodeRef) -> ActOutcome {
        if from == to {
            return ActOutcome::Skipped("both ends are the same node");
        }
        world.network.cut(node_of(from), node_of(to));
        if self.is_vacant(world, from) || self.is_vacant(world, to) {
            return ActOutcome::Skipped(VACANT);
        }
        let fault = match (from, to) {
            (NodeRef::User(_), _) | (_, NodeRef::User(_)) => "one-way cut of a user",
            (NodeRef::Agent(_), _) => "one-way cut to a replica",
            (_, NodeRef::Agent(_)) => "one-way cut to a host",
            _ => "one-way cut between replicas",
        };
        self.broke(world, fault, format_args!("{from} to {to}"))
    }

    pub(super) fn degrade_link(&mut self, world: &World, from: NodeRef, to: NodeRef) -> ActOutcome {
        if from == to {
            return ActOutcome::Skipped("both ends are the same node");
        }
        world.network.degrade(node_of(from), node_of(to));
        if self.is_vacant(world, from) || self.is_vacant(world, to) {
            return ActOutcome::Skipped(VACANT);
        }
        self.broke(world, "link degraded", format_args!("{from} to {to}"))
    }

    pub(super) fn heal_links(&mut self, world: &World) {
        world.network.heal();
        self.repaired(world, "links healed", format_args!("all"));
    }

    /// Whether a machine for a replica has none: not yet, or no longer.
    fn is_vacant(&self, world: &World, node: NodeRef) -> bool {
        match node {
            NodeRef::Replica(id) => {
                world.replicas.life(id) == 0 || self.replicas_lost.contains(&id)
            }
            NodeRef::Agent(_) | NodeRef::User(_) => false,
        }
    }
}
