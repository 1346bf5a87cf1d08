//! Network faults. Links of a machine without a replica are cut as well, since one may be started there
//! before links are healed; but this is not counted as a fault.

use crate::sim::nemesis::{Done, Nemesis, everybody, node_of};
use crate::sim::plan::Place;
use crate::sim::world::World;

/// Reason why a fault of a link has no effect.
const VACANT: &str = "no replica is on that machine";

impl Nemesis {
    pub(super) fn isolate(&mut self, world: &World, place: Place) -> Done {
        world.network.isolate(node_of(place), everybody(world));
        if self.is_vacant(world, place) {
            return Done::Skipped(VACANT);
        }
        let fault = match place {
            Place::Replica(_) => "replica isolated",
            Place::Agent(_) => "host isolated",
            Place::User(_) => "user isolated",
        };
        self.broke(world, fault, format_args!("{place}"))
    }

    pub(super) fn cut(&mut self, world: &World, from: Place, to: Place) -> Done {
        if from == to {
            return Done::Skipped("both ends are the same node");
        }
        world.network.cut(node_of(from), node_of(to));
        if self.is_vacant(world, from) || self.is_vacant(world, to) {
            return Done::Skipped(VACANT);
        }
        let fault = match (from, to) {
            (Place::User(_), _) | (_, Place::User(_)) => "one-way cut of a user",
            (Place::Agent(_), _) => "one-way cut to a replica",
            (_, Place::Agent(_)) => "one-way cut to a host",
            _ => "one-way cut between replicas",
        };
        self.broke(world, fault, format_args!("{from} to {to}"))
    }

    pub(super) fn spoil(&mut self, world: &World, from: Place, to: Place) -> Done {
        if from == to {
            return Done::Skipped("both ends are the same node");
        }
        world.network.spoil(node_of(from), node_of(to));
        if self.is_vacant(world, from) || self.is_vacant(world, to) {
            return Done::Skipped(VACANT);
        }
        self.broke(world, "link degraded", format_args!("{from} to {to}"))
    }

    pub(super) fn heal_links(&mut self, world: &World) {
        world.network.heal();
        self.repaired(world, "links healed", format_args!("all"));
    }

    /// Whether a machine for a replica has none: not yet, or no longer.
    fn is_vacant(&self, world: &World, place: Place) -> bool {
        match place {
            Place::Replica(id) => world.replicas.life(id) == 0 || self.replicas_lost.contains(&id),
            Place::Agent(_) | Place::User(_) => false,
        }
    }
}
