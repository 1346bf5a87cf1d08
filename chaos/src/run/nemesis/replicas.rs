//! Faults of replicas.

use std::sync::Arc;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rustix::io::Errno;
use rustix::process::Signal;
use tokio::time::{Instant, sleep, sleep_until};

use crate::cluster::Direction;
use crate::run::clock::now_us;
use crate::run::load::Workshop;
use crate::run::nemesis::effects::{Effect, last_entry, snapshots_of};
use crate::run::nemesis::loyal::Loyal;
use crate::run::nemesis::orders::Orders;
use crate::run::nemesis::{Nemesis, Severed};
use crate::run::options::{
    AWAY, CLOCK_STEP_S, POLL, SHORT_FAULT, SLOW_SYNC_MS, SNAPSHOTS, WHOLE_PATIENCE, WORKERS,
};
use crate::run::{Fault, RunError};

impl Nemesis {
    pub(super) async fn kill_leader(&mut self) -> Result<String, RunError> {
        let replica = self.leader().await?;
        self.kill(replica).await
    }

    pub(super) async fn kill_follower(&mut self) -> Result<String, RunError> {
        let replica = self.follower().await?;
        self.kill(replica).await
    }

    async fn kill(&mut self, replica: usize) -> Result<String, RunError> {
        self.cluster.kill_replica(replica)?;
        sleep(AWAY).await;
        self.cluster.start_replica(replica)?;
        Ok(self.name_of(replica))
    }

    pub(super) async fn pause_leader(&mut self) -> Result<String, RunError> {
        let replica = self.leader().await?;
        let member = &self.cluster.replicas()[replica];
        member.signal(Signal::STOP)?;
        sleep(SHORT_FAULT).await;
        member.signal(Signal::CONT)?;
        Ok(self.name_of(replica))
    }

    pub(super) async fn cut_leader(&mut self, fault: Fault) -> Result<String, RunError> {
        let direction = if fault == Fault::LeaderDeaf {
            Direction::In
        } else {
            Direction::Out
        };
        let replica = self.leader().await?;
        self.cluster.cut_replica(replica, direction)?;
        sleep(SHORT_FAULT).await;
        self.cluster.heal_replica(replica, direction)?;
        Ok(self.name_of(replica))
    }

    /// Isolates the leader from replicas and workers. Users use the other replicas; a pinned client keeps
    /// asking the old leader, to catch wrong answers.
    pub(super) async fn part_leader(&mut self) -> Result<String, RunError> {
        let replica = self.leader().await?;
        let mut loyal = self.loyal_to(replica).await?;
        let job = loyal.submit().await;
        self.cluster.part_replica(replica)?;
        let from_us = now_us();
        let until = Instant::now() + SHORT_FAULT;
        let join = async {
            sleep_until(until).await;
            let until_us = now_us();
            self.cluster.join_replica(replica).map(|()| until_us)
        };
        let (joined, is_heard) = tokio::join!(join, loyal.insist(job, until));
        self.severed = Some(Severed {
            address: self.cluster.addresses().swap_remove(replica),
            from_us,
            until_us: joined?,
            is_reached: is_heard,
        });
        if !is_heard || job.is_none() {
            // The client did not reach it, or there was nothing to read: a missing response proves nothing.
            self.effect = Some(Effect::Known(false));
        }
        Ok(self.name_of(replica))
    }

    async fn loyal_to(&mut self, replica: usize) -> Result<Loyal, RunError> {
        let address = self.cluster.addresses().swap_remove(replica);
        let random = ChaCha8Rng::seed_from_u64(self.random.random());
        let (_, spec) = Workshop::own(&self.tools.trainer, &self.tools.ledger).sample();
        Ok(Loyal::to(address, Arc::clone(&self.history), random, spec).await?)
    }

    /// A replica with a full disk continues in the preallocated space of its log, or stops; then it must
    /// recover once there is space.
    pub(super) async fn fill_disk(&mut self) -> Result<String, RunError> {
        let replica = self.leader().await?;
        let data = self.cluster.replicas()[replica].data();
        let before = snapshots_of(&data)?;
        self.disks[replica].fill()?;
        // A snapshot needs new space, whatever the replica does about it.
        let asked = self.pinned[replica].trigger_snapshot().await;
        let deadline = Instant::now() + SHORT_FAULT;
        while self.cluster.is_replica_running(replica)? && Instant::now() < deadline {
            sleep(POLL).await;
        }
        let stopped = !self.cluster.is_replica_running(replica)?;
        let is_refused = asked.is_ok() && snapshots_of(&data)? == before;
        self.effect = Some(Effect::Known(stopped || is_refused));
        self.disks[replica].relieve()?;
        if !self.cluster.is_replica_running(replica)? {
            // Reaps it, so that it can be started again.
            self.cluster.kill_replica(replica)?;
            self.cluster.start_replica(replica)?;
        }
        Ok(self.name_of(replica))
    }

    pub(super) async fn slow_syncs(&mut self) -> Result<String, RunError> {
        let replica = self.leader().await?;
        let slow = Orders {
            sync_delay_ms: SLOW_SYNC_MS,
            ..Orders::default()
        };
        let obeyed = Orders::obeyed(&self.cluster.replicas()[replica])?;
        self.order(replica, slow)?;
        sleep(SHORT_FAULT).await;
        self.order(replica, Orders::default())?;
        self.require_obeyed(replica, obeyed)?;
        Ok(self.name_of(replica))
    }

    /// A replica whose sync fails must stop: the contents of its disk are then unknown.
    pub(super) async fn fail_sync(&mut self) -> Result<String, RunError> {
        let replica = self.leader().await?;
        let failing = Orders {
            sync_error: i64::from(Errno::IO.raw_os_error()),
            ..Orders::default()
        };
        self.order(replica, failing)?;
        let stopped = self.await_end_of(replica, "a sync failed").await;
        self.order(replica, Orders::default())?;
        stopped?;
        self.cluster.start_replica(replica)?;
        Ok(self.name_of(replica))
    }

    pub(super) async fn set_clock(&mut self) -> Result<String, RunError> {
        let replica = self.leader().await?;
        let obeyed = Orders::obeyed(&self.cluster.replicas()[replica])?;
        for clock_offset_s in [CLOCK_STEP_S, -CLOCK_STEP_S, 0] {
            let orders = Orders {
                clock_offset_s,
                ..Orders::default()
            };
            self.order(replica, orders)?;
            sleep(SHORT_FAULT / 2).await;
        }
        self.require_obeyed(replica, obeyed)?;
        Ok(self.name_of(replica))
    }

    /// Replaces every process by one of the same or of another build.
    pub(super) async fn roll_over(&mut self) -> Result<String, RunError> {
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
        if !self.await_whole().await {
            let why = self.what_is_missing().await;
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
        let deadline = Instant::now() + WHOLE_PATIENCE;
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
    fn require_obeyed(&self, replica: usize, before: u64) -> Result<(), RunError> {
        if Orders::obeyed(&self.cluster.replicas()[replica])? > before {
            return Ok(());
        }
        let name = self.name_of(replica);
        Err(RunError::Harness(format!(
            "{name} ignores the fault library: is it loaded?"
        )))
    }
}
