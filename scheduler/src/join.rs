//! Joining a group that exists: a new replica asks its members to be added as a learner.

use std::time::Duration;

use muster_core::state::State;
use muster_proto::status::ErrorReport;
use muster_proto::v1;
use muster_proto::v1::admin_service_client::AdminServiceClient;
use muster_proto::v1::change_replicas_request::Change;
use muster_raft_store::Handle;
use muster_tls::Dialer;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;
use tonic::{Code, Status};

use crate::config::SchedulerConfig;
use crate::error::Error;

/// Wait before the members are asked again.
const RETRY: Duration = Duration::from_millis(500);
/// Longest wait for a connection to a member.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest wait for a member's answer: the leader asks this replica who it is, and commits.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(12);

/// Asks to be added, until this replica finds itself in the membership: on a restart it does so at once.
pub(crate) async fn join(
    handle: &Handle<State>,
    config: &SchedulerConfig,
    dialer: &Dialer,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let own = config.replica_id.get();
    let mut told = String::new();
    while handle.status().member(own).is_none() && !stop.is_cancelled() {
        for address in &config.join {
            match ask(address, config, dialer).await {
                Ok(()) => {
                    tracing::info!(
                        via = address,
                        "this replica is a learner of the group; `muster cluster promote {own}` makes it vote"
                    );
                    return Ok(());
                }
                Err(status) if is_final(&status) => {
                    return Err(Error::Join {
                        address: address.clone(),
                        reason: status.message().to_owned(),
                    });
                }
                Err(status) => tell_once(&mut told, address, &status),
            }
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = sleep(RETRY) => {}
        }
    }
    Ok(())
}

async fn ask(address: &str, config: &SchedulerConfig, dialer: &Dialer) -> Result<(), Status> {
    let asked = async {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT);
        let channel = dialer.connect(&endpoint).await;
        let channel = channel.map_err(|error| Status::unavailable(error.to_string()))?;
        let add = v1::AddReplica {
            replica_id: config.replica_id.get(),
            address: config.advertised_address().to_owned(),
        };
        let request = v1::ChangeReplicasRequest {
            change: Some(Change::Add(add)),
            force: false,
        };
        AdminServiceClient::new(channel)
            .change_replicas(request)
            .await
    };
    let answered = timeout(ANSWER_TIMEOUT, asked).await;
    answered
        .map_err(|_| Status::deadline_exceeded("no answer in time"))?
        .map(drop)
}

/// Whether asking again would be answered in the same way.
fn is_final(status: &Status) -> bool {
    match status.code() {
        Code::InvalidArgument | Code::Unimplemented => true,
        Code::FailedPrecondition => ErrorReport::of(status).reason == "REFUSED",
        _ => false,
    }
}

/// Says what joining waits for, once for each thing.
fn tell_once(told: &mut String, address: &str, status: &Status) {
    let reason = format!("{address}: {}", status.message());
    if *told != reason {
        tracing::warn!(
            member = address,
            reason = status.message(),
            "not joined yet"
        );
        *told = reason;
    }
}

#[cfg(test)]
mod tests {
    use muster_proto::status;

    use super::*;

    #[test]
    fn what_the_group_refuses_is_not_asked_again() {
        let refused = |code, reason| is_final(&status::error(code, reason, "", &[]));
        assert!(refused(Code::FailedPrecondition, "REFUSED"));
        assert!(refused(Code::InvalidArgument, "INVALID_REQUEST"));
        // Those pass.
        assert!(!refused(Code::FailedPrecondition, "CHANGE_UNDER_WAY"));
        assert!(!refused(Code::FailedPrecondition, "FEATURE_NOT_YET"));
        assert!(!refused(Code::Unavailable, "UNREACHABLE"));
        assert!(!refused(Code::Unavailable, "NOT_LEADER"));
    }
}
