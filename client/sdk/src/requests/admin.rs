//! Admin operations on hosts, GPUs, queues and replicas.

use std::time::Duration;

use muster_model::ids::{ReplicaId, Revision};
use muster_proto::v1;

use crate::client::{Client, admin, new_request_id};
use crate::error::ClientError;

/// Shortest timeout of an attempt to change the replicas: a leader waits 5 s for the replica that it
/// contacts, and then commits.
const CHANGE_TRY_MIN: Duration = Duration::from_secs(12);

impl Client {
    /// Takes a host or GPU out of placement, or (`dry_run`) reports what that would affect.
    ///
    /// An empty `request_id` is filled in.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `UNKNOWN_HOST`, `UNKNOWN_GPU`, `INVALID_REQUEST`, or
    /// `LAST_HOST` if no other host of the pool accepts work and the block is not forced.
    pub async fn block(
        &self,
        mut request: v1::BlockRequest,
    ) -> Result<v1::BlockResponse, ClientError> {
        identify(&mut request.request_id);
        self.call(self.operation("block it"), |channel| {
            let request = request.clone();
            async move { admin(channel).block(request).await }
        })
        .await
    }

    /// Returns a host or GPU to placement.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `NOT_BLOCKED`, `UNKNOWN_HOST` or `UNKNOWN_GPU`.
    pub async fn unblock(
        &self,
        target: v1::BlockTarget,
        author: &str,
    ) -> Result<Revision, ClientError> {
        self.end_block(target, author, false).await
    }

    /// Cancels the planned block of a host; a block in force stays.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `NOTHING_PLANNED` or `UNKNOWN_HOST`.
    pub async fn cancel_planned_block(
        &self,
        target: v1::BlockTarget,
        author: &str,
    ) -> Result<Revision, ClientError> {
        self.end_block(target, author, true).await
    }

    async fn end_block(
        &self,
        target: v1::BlockTarget,
        author: &str,
        planned: bool,
    ) -> Result<Revision, ClientError> {
        let request = v1::UnblockRequest {
            request_id: new_request_id(),
            target: Some(target),
            author: author.to_owned(),
            planned,
        };
        let answer = self
            .call(self.operation("unblock it"), |channel| {
                let request = request.clone();
                async move { admin(channel).unblock(request).await }
            })
            .await?;
        Ok(Revision(answer.revision))
    }

    /// Creates or changes a queue; a limit that is not set means the product's default.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `INVALID_REQUEST`.
    pub async fn set_queue(
        &self,
        name: &str,
        live_jobs_max: Option<u64>,
    ) -> Result<Revision, ClientError> {
        let request = v1::SetQueueRequest {
            request_id: new_request_id(),
            name: name.to_owned(),
            live_jobs_max,
        };
        let answer = self
            .call(self.operation("set the queue"), |channel| {
                let request = request.clone();
                async move { admin(channel).set_queue(request).await }
            })
            .await?;
        Ok(Revision(answer.revision))
    }

    /// Replaces the queue tree, or (`dry_run`) reports what that would change. An empty `request_id` is
    /// filled in.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `INVALID_CONFIGURATION` and every violated rule.
    pub async fn configure_queues(
        &self,
        mut request: v1::ConfigureQueuesRequest,
    ) -> Result<v1::ConfigureQueuesResponse, ClientError> {
        identify(&mut request.request_id);
        self.call(self.operation("configure the queues"), |channel| {
            let request = request.clone();
            async move { admin(channel).configure_queues(request).await }
        })
        .await
    }

    /// Replaces the topology, or (`dry_run`) reports what that would change. An empty `request_id` is
    /// filled in.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `INVALID_CONFIGURATION` and every violated rule.
    pub async fn set_topology(
        &self,
        mut request: v1::SetTopologyRequest,
    ) -> Result<v1::SetTopologyResponse, ClientError> {
        identify(&mut request.request_id);
        self.call(self.operation("set the topology"), |channel| {
            let request = request.clone();
            async move { admin(channel).set_topology(request).await }
        })
        .await
    }

    /// Reads the health state of GPUs, adapters and hosts, and the health rules.
    ///
    /// # Errors
    /// Those of a call.
    pub async fn health(
        &self,
        consistency: v1::Consistency,
    ) -> Result<v1::GetHealthResponse, ClientError> {
        let request = v1::GetHealthRequest {
            consistency: consistency.into(),
            at_revision: self.at_revision(),
            ..v1::GetHealthRequest::default()
        };
        let operation = self.operation("read the health");
        let answer = self
            .call(operation, |channel| async move {
                admin(channel).get_health(request).await
            })
            .await?;
        self.check_revision(operation.name, answer.revision)?;
        Ok(answer)
    }

    /// Replaces the health rules, or (`dry_run`) reports what they would have blocked. An empty
    /// `request_id` is filled in.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `INVALID_REQUEST`, the line, the problem there and its
    /// correction.
    pub async fn set_health_rules(
        &self,
        mut request: v1::SetHealthRulesRequest,
    ) -> Result<v1::SetHealthRulesResponse, ClientError> {
        identify(&mut request.request_id);
        self.call(self.operation("set the health rules"), |channel| {
            let request = request.clone();
            async move { admin(channel).set_health_rules(request).await }
        })
        .await
    }

    /// Closes the circuit breaker of a pool, after inspection by an operator.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `BREAKER_WHOLE`.
    pub async fn reset_breaker(&self, pool: &str, author: &str) -> Result<Revision, ClientError> {
        let request = v1::ResetBreakerRequest {
            request_id: new_request_id(),
            author: author.to_owned(),
            pool: pool.to_owned(),
        };
        let answer = self
            .call(self.operation("reset the breaker"), |channel| {
                let request = request.clone();
                async move { admin(channel).reset_breaker(request).await }
            })
            .await?;
        Ok(Revision(answer.revision))
    }

    /// Transfers leadership to this replica, or to any that is up to date. Returns the intended leader.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if there is no such replica or it is not up to date.
    pub async fn transfer_leader(&self, to: Option<ReplicaId>) -> Result<ReplicaId, ClientError> {
        let request = v1::TransferLeaderRequest {
            to_replica_id: to.map_or(0, ReplicaId::get),
        };
        let answer = self
            .call(
                self.operation("transfer the leadership"),
                |channel| async move { admin(channel).transfer_leader(request).await },
            )
            .await?;
        Ok(ReplicaId(answer.to_replica_id))
    }

    /// Changes the replicas in one step; a repeated call changes nothing. `force` permits fewer than three
    /// remaining voters.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `REFUSED`, `NOT_LEVEL` (the replica must catch up first),
    /// `CHANGE_UNDER_WAY`, and without `retries_temporary_refusals` also `REPLICA_UNREACHABLE` (a required replica
    /// does not answer).
    pub async fn change_replicas(
        &self,
        change: v1::change_replicas_request::Change,
        force: bool,
    ) -> Result<v1::ChangeReplicasResponse, ClientError> {
        let request = v1::ChangeReplicasRequest {
            change: Some(change),
            force,
        };
        let per_try = self.config().per_try_deadline.max(CHANGE_TRY_MIN);
        let operation = self.operation("change the replicas");
        self.call_with_timeout(operation, per_try, |channel| {
            let request = request.clone();
            async move { admin(channel).change_replicas(request).await }
        })
        .await
    }

    /// Makes the answering replica write a snapshot; returns its id and the revision.
    ///
    /// # Errors
    /// Those of a call.
    pub async fn trigger_snapshot(&self) -> Result<(ReplicaId, Revision), ClientError> {
        let answer = self
            .call(self.operation("write a snapshot"), |channel| async move {
                let request = v1::TriggerSnapshotRequest {};
                admin(channel).trigger_snapshot(request).await
            })
            .await?;
        Ok((ReplicaId(answer.replica_id), Revision(answer.revision)))
    }

    /// Makes a simulated GPU fail, or recover if no fault is given.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `NOT_SIMULATED` for a real GPU, `UNKNOWN_GPU`.
    pub async fn inject_gpu_fault(
        &self,
        host: &str,
        gpu: &str,
        fault: Option<v1::GpuFault>,
    ) -> Result<(), ClientError> {
        let signal = v1::InjectedSignal {
            gpu: gpu.to_owned(),
            fault,
        };
        let what = Some(v1::injection::What::Signal(signal));
        self.inject_fault(host, v1::Injection { what }).await
    }

    /// Injects an observation into a host with simulated GPUs, through the same interfaces as a real one.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `NOT_SIMULATED` if the GPUs are real, `UNKNOWN_HOST`,
    /// `UNKNOWN_GPU`.
    pub async fn inject_fault(
        &self,
        host: &str,
        injection: v1::Injection,
    ) -> Result<(), ClientError> {
        let request = v1::InjectFaultRequest {
            host: host.to_owned(),
            injection: Some(injection),
        };
        self.call(self.operation("inject the fault"), |channel| {
            let request = request.clone();
            async move { admin(channel).inject_fault(request).await }
        })
        .await
        .map(|_| ())
    }
}

fn identify(request_id: &mut String) {
    if request_id.is_empty() {
        *request_id = new_request_id();
    }
}
