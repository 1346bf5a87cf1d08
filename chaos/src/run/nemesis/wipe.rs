//! Fault of a replica that lost its data: it must report it, and neither serve nor vote, until a new one
//! replaces it.

use std::fs;

use muster_proto::v1;
use tokio::time::{Instant, sleep, timeout};

use crate::run::RunError;
use crate::run::clock::now_us;
use crate::run::nemesis::Nemesis;
use crate::run::nemesis::effects::Effect;
use crate::run::nemesis::health_check::LOOK;
use crate::run::options::{POLL, SHORT_FAULT, WHOLE_TIMEOUT};

/// Message that such a replica logs once.
const SAYS: &str = "its data directory was lost or replaced";

impl Nemesis {
    /// Starts a follower without its data. It reports why it does not serve, and the others continue. Then
    /// the leader dies: of three replicas only one is left that may vote, so no replica may be elected
    /// until the leader is back. In the end a new replica takes its place, on the same machine and under
    /// the same address, as `muster cluster remove --force` and `add` do it.
    pub(super) async fn wipe_replica(&mut self) -> Result<String, RunError> {
        let replica = self.follower().await?;
        self.cluster.kill_replica(replica)?;
        let said_before = self.count_said(replica)?;
        self.cluster.wipe_replica(replica)?;
        self.cluster.start_replica(replica)?;
        self.judge_wiped(replica, said_before).await?;
        self.judge_without_leader(replica).await?;
        let name = self.name_of(replica);
        self.rejoin(replica).await?;
        Ok(name)
    }

    /// Number of times a replica reported that its data is lost.
    fn count_said(&self, replica: usize) -> Result<usize, RunError> {
        let log = self.cluster.replicas()[replica].log();
        let reading = RunError::io(format!("reading {}", log.display()));
        let text = fs::read_to_string(&log).map_err(reading)?;
        Ok(text.matches(SAYS).count())
    }

    /// Checks that it reports the loss and does not serve, while the others do.
    async fn judge_wiped(&mut self, replica: usize, said_before: usize) -> Result<(), RunError> {
        let name = self.name_of(replica);
        let deadline = Instant::now() + WHOLE_TIMEOUT;
        while self.count_said(replica)? == said_before && Instant::now() < deadline {
            sleep(POLL).await;
        }
        let says = self.count_said(replica)? > said_before;
        self.effect = Some(Effect::Known(says));
        if !says {
            self.odd
                .push(format!("{name} does not report that its data is lost"));
        }
        let from_us = now_us();
        if self.serves(replica).await {
            self.odd.push(format!("{name} serves without its data"));
        }
        sleep(SHORT_FAULT / 2).await;
        if self.history.answered_between(from_us, now_us()) == 0 {
            self.odd
                .push(format!("no call is answered while {name} lacks its data"));
        }
        Ok(())
    }

    /// Checks that the vote of a replica without data does not elect the last one with data.
    async fn judge_without_leader(&mut self, wiped: usize) -> Result<(), RunError> {
        let leader = self.leader().await?;
        if leader == wiped {
            let name = self.name_of(wiped);
            self.odd.push(format!("{name} leads without its data"));
            return Ok(());
        }
        self.cluster.kill_replica(leader)?;
        let deadline = Instant::now() + SHORT_FAULT;
        while Instant::now() < deadline {
            for replica in (0..self.pinned.len()).filter(|replica| *replica != leader) {
                if self.serves(replica).await {
                    let (name, by) = (self.name_of(replica), self.name_of(wiped));
                    let text = format!(
                        "{name} serves, elected with the vote of {by}, which lacks its data"
                    );
                    self.odd.push(text);
                }
            }
            sleep(POLL).await;
        }
        Ok(self.cluster.start_replica(leader)?)
    }

    /// Whether a replica answers a linearizable read, for which it must lead or know the leader.
    async fn serves(&self, replica: usize) -> bool {
        let status = self.pinned[replica].status(v1::Consistency::Linearizable);
        matches!(timeout(LOOK, status).await, Ok(Ok(_)))
    }
}
