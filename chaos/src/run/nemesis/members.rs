//! Adding and removing replicas, with the commands that an admin uses.

use muster_client::ClientError;
use muster_model::ids::ReplicaId;
use muster_proto::v1;
use muster_proto::v1::change_replicas_request::Change;
use tokio::time::{Instant, sleep};

use crate::cluster::PendingReplica;
use crate::run::RunError;
use crate::run::nemesis::Nemesis;
use crate::run::nemesis::effects::Effect;
use crate::run::options::{POLL, WHOLE_TIMEOUT};

impl Nemesis {
    /// A fourth replica joins, and the leader is removed while it leads; a new replica, without data and
    /// with another id, joins on its machine, and the fourth is removed. So there are four voters, three,
    /// four, and three again, at the addresses that users know. A removed replica must end by itself.
    pub(super) async fn change_members(&mut self) -> Result<String, RunError> {
        let leader = self.leader().await?;
        let (name, old) = (self.name_of(leader), self.cluster.replica_ids()[leader]);
        let fourth = self.cluster.start_spare()?;
        self.admit(&fourth).await?;
        self.remove(old, false).await?;
        self.await_end_of(leader, "it was removed").await?;
        let new = self.cluster.replace_replica(leader)?;
        self.admit(&new).await?;
        self.remove(fourth.id, false).await?;
        self.await_end_of_spare(&fourth).await?;
        self.judge_voters().await?;
        Ok(name)
    }

    /// Replaces a permanently lost replica by a new one on its machine and under its address: the lost one
    /// is removed first, though only two voters are left until the new one has caught up.
    pub(super) async fn rejoin(&mut self, replica: usize) -> Result<(), RunError> {
        let old = self.cluster.replica_ids()[replica];
        self.remove(old, true).await?;
        let new = self.cluster.replace_replica(replica)?;
        self.admit(&new).await
    }

    /// Adds a replica, and promotes it to voter once it has caught up.
    async fn admit(&self, new: &PendingReplica) -> Result<(), RunError> {
        let add = Change::Add(v1::AddReplica {
            replica_id: new.id.get(),
            address: new.address.clone(),
        });
        self.client.change_replicas(add, false).await?;
        let promote = Change::PromoteReplicaId(new.id.get());
        let deadline = Instant::now() + WHOLE_TIMEOUT;
        loop {
            match self.client.change_replicas(promote.clone(), false).await {
                Ok(_) => return Ok(()),
                Err(error) if passes(&error) && Instant::now() < deadline => sleep(POLL).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Removes a replica; with `force` also if only two voters are left.
    async fn remove(&self, replica: ReplicaId, force: bool) -> Result<(), RunError> {
        let change = Change::RemoveReplicaId(replica.get());
        self.client.change_replicas(change, force).await?;
        Ok(())
    }

    async fn await_end_of_spare(&mut self, removed: &PendingReplica) -> Result<(), RunError> {
        let deadline = Instant::now() + WHOLE_TIMEOUT;
        while self.cluster.is_spare_running()? && Instant::now() < deadline {
            sleep(POLL).await;
        }
        if self.cluster.is_spare_running()? {
            let id = removed.id;
            self.odd.push(format!(
                "replica {id} keeps running although it was removed"
            ));
        }
        Ok(self.cluster.clear_spare()?)
    }

    /// Checks that exactly the expected replicas vote.
    async fn judge_voters(&mut self) -> Result<(), RunError> {
        let status = self.client.status(v1::Consistency::Linearizable).await?;
        let voters = { status.replicas.iter() }
            .filter(|replica| replica.role() != v1::ReplicaRole::Learner)
            .map(|replica| ReplicaId(replica.id));
        let mut voters: Vec<ReplicaId> = voters.collect();
        let mut expected = self.cluster.replica_ids().to_vec();
        voters.sort_unstable();
        expected.sort_unstable();
        if voters != expected || status.replicas.len() != expected.len() {
            let known = status.replicas.len();
            let text = format!("voters are {voters:?}, expected {expected:?}; members are {known}");
            self.odd.push(text);
        }
        self.effect = Some(Effect::Known(voters == expected));
        Ok(())
    }
}

/// Whether a refusal is temporary: the learner has not caught up, or another change is in progress.
fn passes(error: &ClientError) -> bool {
    error.refusal().is_some_and(|refusal| {
        refusal.reason == "NOT_LEVEL" || refusal.reason == "CHANGE_UNDER_WAY"
    })
}
