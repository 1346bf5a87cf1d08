//! Joining an existing group: a new replica asks the members to be added as a learner.

use std::time::Duration;

use muster_engine::state::State;
use muster_proto::status::ErrorReport;
use muster_proto::v1;
use muster_proto::v1::admin_service_client::AdminServiceClient;
use muster_proto::v1::change_replicas_request::Change;
use muster_raft_store::Handle;
use muster_tls::Dialer;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};

use crate::config::SchedulerConfig;
use crate::error::Error;

/// Wait before the members are asked again.
const RETRY: Duration = Duration::from_millis(500);
/// Longest wait for a connection to a member.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Time that the group may take: longer than its wait for a silent replica, so that the error names that
/// replica.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for a member's answer: the leader verifies this replica's identity, and commits.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(12);
/// Time that an admitted replica waits for its membership, before or after a restart, before it asks again:
/// it may have to catch up first, and the group may have no leader.
const MEMBERSHIP_WAIT_MAX: Duration = Duration::from_secs(30);

/// Asks to be added until a committed membership contains this replica. An uncommitted membership may be lost
/// with the leader that wrote it: this replica would then receive nothing, without any error.
pub(crate) async fn join(
    handle: &Handle<State>,
    config: &SchedulerConfig,
    dialer: &Dialer,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let own = config.replica_id.get();
    let is_named = || handle.status().member(own).is_some();
    let mut last_reason = String::new();
    let mut is_admitted = false;
    let mut wait = if is_named() {
        MEMBERSHIP_WAIT_MAX
    } else {
        Duration::ZERO
    };
    while !belongs_within(handle, own, wait).await && !stop.is_cancelled() {
        wait = RETRY;
        for address in &config.join {
            match request_membership(address, config, dialer).await {
                Ok(()) => {
                    if !is_admitted {
                        tracing::info!(
                            via = address,
                            "this replica joined as a learner; `muster cluster promote {own}` makes it a voter"
                        );
                    }
                    is_admitted = true;
                    wait = MEMBERSHIP_WAIT_MAX;
                    break;
                }
                // A possible member does not give up because of a leader that may not know of it yet.
                Err(status) if is_final(&status) && !is_named() => {
                    return Err(Error::Join {
                        address: address.clone(),
                        reason: status.message().to_owned(),
                    });
                }
                Err(status) => log_once(&mut last_reason, address, &status),
            }
        }
    }
    Ok(())
}

/// Waits up to `wait` until this replica knows that it belongs to the group.
async fn belongs_within(handle: &Handle<State>, own: u64, wait: Duration) -> bool {
    let deadline = Instant::now() + wait;
    loop {
        let status = handle.status();
        if status.membership_is_committed && status.member(own).is_some() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        sleep(RETRY).await;
    }
}

async fn request_membership(
    address: &str,
    config: &SchedulerConfig,
    dialer: &Dialer,
) -> Result<(), Status> {
    let call = async {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| Status::invalid_argument(error.to_string()))?
            .connect_timeout(CONNECT_TIMEOUT);
        let channel = dialer
            .connect(&endpoint)
            .await
            .map_err(|error| Status::unavailable(error.to_string()))?;
        let add = v1::AddReplica {
            replica_id: config.replica_id.get(),
            address: config.advertised_address().to_owned(),
        };
        let mut request = Request::new(v1::ChangeReplicasRequest {
            change: Some(Change::Add(add)),
            force: false,
        });
        request.set_timeout(CHANGE_TIMEOUT);
        AdminServiceClient::new(channel)
            .change_replicas(request)
            .await
    };
    let answered = timeout(ANSWER_TIMEOUT, call).await;
    answered
        .map_err(|_| Status::deadline_exceeded("no answer before the timeout"))?
        .map(drop)
}

/// Whether a retry would get the same answer.
fn is_final(status: &Status) -> bool {
    match status.code() {
        Code::InvalidArgument | Code::Unimplemented => true,
        Code::FailedPrecondition => ErrorReport::of(status).reason == "REFUSED",
        _ => false,
    }
}

/// Logs what joining waits for, once per cause.
fn log_once(last_reason: &mut String, address: &str, status: &Status) {
    let reason = format!("{address}: {}", status.message());
    if *last_reason != reason {
        tracing::warn!(
            member = address,
            reason = status.message(),
            "not joined yet"
        );
        *last_reason = reason;
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;

    use muster_model::ids::ReplicaId;
    use muster_proto::status;
    use muster_raft_store::sim::{Environment, ProductionRuntime};
    use muster_raft_store::storage::memory::{MemoryLog, MemoryNetwork, MemorySnapshots};
    use muster_raft_store::{Config, Peer, WallClock};

    use super::*;

    /// Longest wait for an expected event.
    const TIMEOUT: Duration = Duration::from_secs(60);

    async fn open(id: u64, network: &MemoryNetwork) -> Handle<State> {
        let environment = Environment {
            log: Arc::new(MemoryLog::new()),
            snapshots: Arc::new(MemorySnapshots::new()),
            transport: Arc::new(network.clone()),
            clock: Arc::new(WallClock),
            fresh_incarnation: id,
        };
        let config = Config::new(id, "test", "unused");
        let opened = Handle::<State>::open_on::<ProductionRuntime>(config, environment).await;
        let handle = opened.unwrap();
        network.connect(id, &handle);
        handle
    }

    async fn until(what: &str, is_so: impl Fn() -> bool) {
        let waited = timeout(TIMEOUT, async {
            while !is_so() {
                sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(waited.await.is_ok(), "timed out: {what}");
    }

    fn peer(id: u64) -> Peer {
        Peer::new(id, format!("replica-{id}"))
    }

    fn leads(handle: &Handle<State>) -> bool {
        handle.leadership().borrow().is_self
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_learner_has_joined_only_when_its_admission_is_committed() {
        let network = MemoryNetwork::new();
        let (one, two) = (open(1, &network).await, open(2, &network).await);
        let new = open(3, &network).await;
        one.initialize(vec![peer(1), peer(2)]).await.unwrap();
        until("a replica leads", || leads(&one) || leads(&two)).await;
        let (leader, silent) = if leads(&one) { (one, 2) } else { (two, 1) };
        for id in 1..=3 {
            network.cut(id, silent);
            network.cut(silent, id);
        }
        let admitting = tokio::spawn(async move { leader.add_learner(peer(3)).await });
        until("the member is listed", || new.status().member(3).is_some()).await;

        let config = SchedulerConfig {
            replica_id: ReplicaId(3),
            join: vec!["127.0.0.1:1".to_owned()],
            ..SchedulerConfig::default()
        };
        let (dialer, stop) = (Dialer::new(None), CancellationToken::new());
        let mut joining = std::pin::pin!(join(&new, &config, &dialer, &stop));
        let early = timeout(2 * RETRY, &mut joining).await;
        assert!(early.is_err(), "the membership is not committed: {early:?}");
        assert!(!new.status().membership_is_committed);
        network.heal();
        timeout(TIMEOUT, joining).await.unwrap().unwrap();
        assert!(new.status().membership_is_committed);
        drop(admitting);
    }

    #[test]
    fn a_final_refusal_of_the_group_is_not_retried() {
        let refused = |code, reason| is_final(&status::error(code, reason, "", &[]));
        assert!(refused(Code::FailedPrecondition, "REFUSED"));
        assert!(refused(Code::InvalidArgument, "INVALID_REQUEST"));
        // These are transient.
        assert!(!refused(Code::FailedPrecondition, "CHANGE_UNDER_WAY"));
        assert!(!refused(Code::FailedPrecondition, "FEATURE_NOT_YET"));
        assert!(!refused(Code::Unavailable, "REPLICA_UNREACHABLE"));
        assert!(!refused(Code::Unavailable, "NOT_LEADER"));
    }
}
