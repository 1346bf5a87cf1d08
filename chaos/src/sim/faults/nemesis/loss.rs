//! Loss of all replicas with their disks, and recovery of a new group from the newest backup.

use std::time::Duration;

use muster_engine::state::{RecoveryHold, State};
use muster_model::time::TimeMs;
use muster_raft_store::recovery::backup::{Backup, BackupMetadata};
use muster_raft_store::{Clock as _, StateMachine};
use tokio::time::{sleep, timeout};

use crate::error_chain::chain;
use crate::sim::clock::SimClock;
use crate::sim::faults::coverage::Situation;
use crate::sim::faults::nemesis::{ActOutcome, Nemesis, last_used};
use crate::sim::mutant::Mutant;
use crate::sim::operator::{MembershipChange, OPERATOR_NODES};
use crate::sim::results::report::Violation;
use crate::sim::runtime::{NodeId, kill};
use crate::sim::world::World;

/// Maximum time for a new leader to announce itself.
const LEADS_MAX: Duration = Duration::from_secs(2);
/// Time from the loss to the new group: by then no answer of the old one is in flight, but leases still
/// run.
const FOUNDED_AFTER: Duration = Duration::from_millis(2_100);

/// A backup.
#[derive(Debug)]
pub(super) struct Saved {
    bytes: Vec<u8>,
    /// Whether a group was restored from it.
    has_served: bool,
}

impl Nemesis {
    /// Takes a backup on the leader: it contains everything answered before.
    pub(super) async fn back_up(&mut self, world: &World) -> ActOutcome {
        let mut up = world.replicas.registry.up().into_iter();
        let leader = up.find(|(_, handle)| handle.leadership().borrow().is_self);
        let Some((replica, handle)) = leader else {
            return ActOutcome::Skipped("there is no leader");
        };
        let mut acknowledged = world.checkers.with(|seen| seen.acknowledged.clone());
        if !matches!(
            timeout(LEADS_MAX, handle.read_linearizable()).await,
            Ok(Ok(_))
        ) {
            return ActOutcome::Skipped("the leader does not answer");
        }
        let picture = handle.capture();
        world.checkers.with(|seen| {
            acknowledged.learn_asked(&seen.acknowledged);
            let lost = acknowledged.judge(picture.state()).into_iter();
            seen.violations.extend(lost.map(Violation::Lost));
        });
        let about = BackupMetadata {
            cluster_id: world.replicas.cluster_id().to_owned(),
            replica_id: replica.0.into(),
            time_ms: picture.state().time.0,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let mut bytes = Vec::new();
        if let Err(error) = picture.write_backup(&mut bytes, &about, None) {
            let text = format!("({}) cannot write a backup: {error}", replica.0);
            world.checkers.violate(Violation::Replica(text));
        }
        let (revision, length) = (picture.state().revision, bytes.len());
        self.backup = Some(Saved {
            bytes,
            has_served: false,
        });
        let what = format_args!("revision {revision}, {length} bytes");
        self.repaired(world, "backup taken", what);
        ActOutcome::Yes
    }

    /// Loses all replicas with their disks. On the remaining machines a new group of the original size is
    /// restored from the newest backup.
    pub(super) async fn lose_replicas(&mut self, world: &mut World) -> ActOutcome {
        let Some(saved) = self.backup.take() else {
            return ActOutcome::Skipped("there is no backup");
        };
        let founder = last_used(world).max(world.machines_of_before()) + 1;
        if founder > world.replicas_count() {
            return ActOutcome::Skipped("no machine is left for a new group");
        }
        self.destroy(world);
        self.broke(world, "all replicas lost", format_args!("with their disks"));
        sleep(FOUNDED_AFTER).await;
        let read = Backup::read(&mut saved.bytes.as_slice(), None);
        match read {
            Ok(backup) if !backup.has_known_hash => {
                let text = "the backup holds a different state than was saved".to_owned();
                world.checkers.violate(Violation::Replica(text));
            }
            Ok(backup) => {
                let is_again = saved.has_served;
                // It is used again if the next group is lost as well.
                self.backup = Some(Saved {
                    has_served: true,
                    ..saved
                });
                self.restore(world, founder, is_again, backup).await;
            }
            Err(error) => {
                let text = format!("the backup cannot be read: {}", chain(&error));
                world.checkers.violate(Violation::Replica(text));
            }
        }
        ActOutcome::Yes
    }

    fn destroy(&mut self, world: &mut World) {
        for number in 0..self.errands.len() {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            kill(NodeId(OPERATOR_NODES + number));
        }
        for id in 1..=world.replicas_count() {
            if world.replicas.life(id) == 0 {
                continue;
            }
            if world.replicas.is_up(id) {
                world.kill_replica(id);
            }
            world.replicas.disk(id).wipe();
            self.disks_faulty.remove(&id);
            self.disks_stalled.remove(&id);
            self.replicas_lost.insert(id);
        }
    }

    async fn restore(
        &mut self,
        world: &mut World,
        founder: u32,
        is_again: bool,
        backup: Backup<State>,
    ) {
        let mut state = backup.state;
        let now_ms = match world.options.mutant {
            Some(Mutant::RestoresLow) => 0,
            // The operator who restores has a correct clock.
            _ => SimClock::new(self.began, 0).now_ms(),
        };
        world.checkers.goes_back(&state);
        StateMachine::carry_over(&mut state, &backup.members, now_ms);
        world.checkers.restored_from(&state);
        if world.options.mutant == Some(Mutant::RestoresAtOnce) {
            hold_nothing(&mut state);
        }
        let revision = state.revision;
        let founded = world
            .replicas
            .restore(founder, backup.term, backup.index, now_ms, state);
        if let Err(error) = founded {
            let text = format!("({founder}) could not create the group: {error}");
            return world.checkers.violate(Violation::Replica(text));
        }
        if let Err(error) = world.start_replica(founder).await {
            let text = format!("({founder}) did not start: {}", chain(&error));
            return world.checkers.violate(Violation::Replica(text));
        }
        let what = format_args!("replica {founder} continues from revision {revision}");
        self.repaired(world, "cluster restored", what);
        let restored = match is_again {
            true => Situation::RestoredAgain,
            false => Situation::Restored,
        };
        world.checkers.with(|seen| seen.coverage.reached(restored));
        for _ in 1..world.founders() {
            // There may be too few machines left: a smaller group is accepted.
            let ActOutcome::Yes = self.bring_replica(world, MembershipChange::Add).await else {
                return;
            };
        }
    }
}

/// Pretends that all leases of the old group expired long ago: a mutant.
fn hold_nothing(state: &mut State) {
    let past = TimeMs::default();
    if let Some(recovery) = &mut state.recovery {
        recovery.hold = Some(RecoveryHold {
            began_at: past,
            over_at: past,
        });
    }
}
