//! Faults of replicas.

use std::sync::Arc;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rustix::io::Errno;
use tokio::time::{Duration, Instant, sleep, sleep_until};

use crate::cluster::{Disruption, LibraryCommands, Part};
use crate::run::RunError;
use crate::run::clock::now_us;
use crate::run::load::LoadSpec;
use crate::run::nemesis::effects::{Effect, last_entry, snapshots_of};
use crate::run::nemesis::pinned_client::PinnedClient;
use crate::run::nemesis::{IsolatedLeader, Nemesis};
use crate::run::options::{
    CLOCK_STEP_S, POLL, SHORT_FAULT, SLOW_SYNC_MS, SNAPSHOTS, WHOLE_TIMEOUT, WORKERS,
};

impl Nemesis {
    /// Disrupts the leader for a while.
    pub(super) async fn disrupt_leader(
        &mut self,
        how: impl Fn(Part) -> Disruption,
        time: Duration,
    ) -> Result<String, RunError> {
        let replica = self.leader().await?;
        self.disrupt_replica(replica, how, time).await
    }

    /// Disrupts a replica for a while.
    pub(super) async fn disrupt_replica(
        &mut self,
        replica: usize,
        how: impl Fn(Part) -> Disruption,
        time: Duration,
    ) -> Result<String, RunError> {
        let disruption = how(Part::Replica(replica));
        self.cluster.inject(&disruption)?;
        sleep(time).await;
        self.cluster.repair(&disruption)?;
        Ok(self.name_of(replica))
    }

    /// Isolates the leader from replicas and workers. Users use the other replicas; a pinned client keeps
    /// asking the old leader, to catch wrong answers.
    pub(super) async fn isolate_leader(&mut self) -> Result<String, RunError> {
        let replica = self.leader().await?;
        let mut client = self.pinned_client_of(replica).await?;
        let job = client.submit().await;
        let isolated = Disruption::Isolated(replica);
        self.cluster.inject(&isolated)?;
        let from_us = now_us();
        let until = Instant::now() + SHORT_FAULT;
        let repair = async {
            sleep_until(until).await;
            let until_us = now_us();
            self.cluster.repair(&isolated).map(|()| until_us)
        };
        let (repaired, is_reached) = tokio::join!(repair, client.insist(job, until));
        self.severed = Some(IsolatedLeader {
            address: self.cluster.addresses().swap_remove(replica),
            from_us,
            until_us: repaired?,
            is_reached,
        });
        if !is_reached || job.is_none() {
            // The client did not reach it, or there was nothing to read: a missing response proves nothing.
            self.effect = Some(Effect::Known(false));
        }
        Ok(self.name_of(replica))
    }

    async fn pinned_client_of(&mut self, replica: usize) -> Result<PinnedClient, RunError> {
        let address = self.cluster.addresses().swap_remove(replica);
        let random = ChaCha8Rng::seed_from_u64(self.random.random());
        let (_, spec) = LoadSpec::own(&self.tools.trainer, &self.tools.ledger).sample();
        Ok(PinnedClient::to(address, Arc::clone(&self.history), random, spec).await?)
    }

    /// A replica with a full disk continues in the preallocated space of its log, or stops; then it must
    /// recover once there is space.
    pub(super) async fn fill_disk(&mut self) -> Result<String, RunError> {
        let replica = self.leader().await?;
        let data = self.cluster.replicas()[replica].data();
        let before = snapshots_of(&data)?;
        let full = Disruption::DiskFull(data.clone());
        self.cluster.inject(&full)?;
        // A snapshot needs new space, whatever the replica does about it.
        let asked = self.pinned[replica].trigger_snapshot().await;
        let deadline = Instant::now() + SHORT_FAULT;
        while self.cluster.is_replica_running(replica)? && Instant::now() < deadline {
            sleep(POLL).await;
        }
        let stopped = !self.cluster.is_replica_running(replica)?;
        let is_refused = asked.is_ok() && snapshots_of(&data)? == before;
        self.effect = Some(Effect::Known(stopped || is_refused));
        self.cluster.repair(&full)?;
        if !self.cluster.is_replica_running(replica)? {
            // Reaps it, so that it can be started again.
            self.cluster.kill_replica(replica)?;
            self.cluster.start_replica(replica)?;
        }
        Ok(self.name_of(replica))
    }

    pub(super) async fn slow_syncs(&mut self) -> Result<String, RunError> {
        let replica = self.leader().await?;
        let slow = LibraryCommands {
            sync_delay_ms: SLOW_SYNC_MS,
            ..LibraryCommands::default()
        };
        let applied = self.cluster.library_applied(replica)?;
        self.cluster.command_library(replica, slow)?;
        sleep(SHORT_FAULT).await;
        let none = LibraryCommands::default();
        self.cluster.command_library(replica, none)?;
        self.require_applied(replica, applied)?;
        Ok(self.name_of(replica))
    }

    /// A replica whose sync fails must stop: the contents of its disk are then unknown.
    pub(super) async fn fail_sync(&mut self) -> Result<String, RunError> {
        let replica = self.leader().await?;
        let failing = LibraryCommands {
            sync_error: i64::from(Errno::IO.raw_os_error()),
            ..LibraryCommands::default()
        };
        self.cluster.command_library(replica, failing)?;
        let stopped = self.await_end_of(replica, "a sync failed").await;
        let none = LibraryCommands::default();
        self.cluster.command_library(replica, none)?;
        stopped?;
        self.cluster.start_replica(replica)?;
        Ok(self.name_of(replica))
    }

    pub(super) async fn set_clock(&mut self) -> Result<String, RunError> {
        let replica = self.leader().await?;
        let applied = self.cluster.library_applied(replica)?;
        for clock_offset_s in [CLOCK_STEP_S, -CLOCK_STEP_S, 0] {
            let commands = LibraryCommands {
                clock_offset_s,
                ..LibraryCommands::default()
            };
            self.cluster.command_library(replica, commands)?;
            sleep(SHORT_FAULT / 2).await;
        }
        self.require_applied(replica, applied)?;
        Ok(self.name_of(replica))
    }

    /// Replaces every process by one of the same or of another build.
    pub(super) async fn restart_all(&mut self) -> Result<String, RunError> {
        let program = self.tools.binary.clone();
        for replica in 0..self.pinned.len() {
            self.cluster.upgrade_replica(replica, &program)?;
            self.note_unless_whole("replacing a replica").await;
        }
        for worker in 0..WORKERS {
            self.expect_agent(worker).await?;
            self.cluster.upgrade_worker(worker, &program)?;
            self.note_unless_whole("replacing an agent").await;
        }
        Ok("all".to_owned())
    }

    async fn note_unless_whole(&mut self, after: &str) {
        if !self.await_recovery().await {
            let why = self.failed_check().await;
            self.odd.push(format!("no recovery after {after}: {why}"));
        }
    }

    pub(super) async fn storm_snapshots(&mut self) -> Result<String, RunError> {
        let replica = self.follower().await?;
        self.cluster.kill_replica(replica)?;
        for number in 0..SNAPSHOTS {
            let others = self.pinned.len();
            let at = (replica + 1 + number % (others - 1)) % others;
            self.pinned[at].trigger_snapshot().await?;
            sleep(SHORT_FAULT / 8).await;
        }
        let data = |at: usize| self.cluster.replicas()[at].data();
        let others: Vec<_> = (0..self.pinned.len()).filter(|at| *at != replica).collect();
        let others: Vec<_> = others.into_iter().map(data).collect();
        let data = data(replica);
        let last = last_entry(&data)?;
        self.effect = Some(Effect::Installed { data, others, last });
        self.cluster.start_replica(replica)?;
        Ok(self.name_of(replica))
    }

    /// Waits until a replica has stopped by itself, under the writes of users that make it notice its
    /// failure. If it does not, this is recorded and it is killed.
    pub(super) async fn await_end_of(&mut self, replica: usize, why: &str) -> Result<(), RunError> {
        let deadline = Instant::now() + WHOLE_TIMEOUT;
        while self.cluster.is_replica_running(replica)? && Instant::now() < deadline {
            sleep(POLL).await;
        }
        if self.cluster.is_replica_running(replica)? {
            let name = self.name_of(replica);
            self.odd
                .push(format!("{name} keeps running although {why}"));
        }
        // Reaps it, so that it can be started again.
        Ok(self.cluster.kill_replica(replica)?)
    }

    /// Fails unless a replica's library applied a command: otherwise no fault was injected.
    fn require_applied(&self, replica: usize, before: u64) -> Result<(), RunError> {
        if self.cluster.library_applied(replica)? > before {
            return Ok(());
        }
        let name = self.name_of(replica);
        Err(RunError::Harness(format!(
            "{name} ignores the fault library: is it loaded?"
        )))
    }
}
