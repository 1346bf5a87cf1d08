//! Bootstrap of a cluster whose replicas find each other through etcd.

use std::time::Duration;

use muster_engine::state::State;
use muster_etcd::{BootstrapPlan, Etcd};
use muster_raft_store::{Handle, Peer};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::bootstrap;
use crate::config::SchedulerConfig;
use crate::error::Error;

/// Longest wait for a message of the leader if the cluster already exists: a member that starts late is
/// contacted within that time.
const LEADER_CONTACT_TIMEOUT: Duration = Duration::from_secs(10);

/// Bootstraps the group with the replicas listed in etcd, if this replica has no group and is the first of
/// them. A replica with a group does not contact etcd.
pub(crate) async fn bootstrap(
    handle: &Handle<State>,
    config: &SchedulerConfig,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let publish = &config.etcd_publish;
    if !config.bootstrap || !handle.status().voters.is_empty() {
        return Ok(());
    }
    let mut etcd = Etcd::open(&config.etcd)?;
    let keys = config.etcd.keys(&config.cluster_id);
    let plan = BootstrapPlan {
        id: config.replica_id.get(),
        address: config.advertised_address().to_owned(),
        expect: publish.bootstrap_expect,
        wait_max: Duration::from_secs(publish.bootstrap_wait_seconds),
    };
    let mut leadership = handle.leadership();
    let founded = tokio::select! {
        () = stop.cancelled() => return Ok(()),
        // Another replica was faster, and this one belongs to its group.
        _ = leadership.wait_for(|now| now.leader.is_some()) => return Ok(()),
        founded = muster_etcd::bootstrap(&mut etcd, &keys, &plan) => founded?,
    };
    if founded.has_begun {
        let contact = timeout(
            LEADER_CONTACT_TIMEOUT,
            leadership.wait_for(|now| now.leader.is_some()),
        )
        .await;
        if contact.is_err() {
            tracing::error!(
                "according to etcd this cluster already had a leader, but this replica has no data and no \
                 contact to it: the data was lost, or `data_dir` is wrong; not bootstrapping. Replace a \
                 lost replica by one with a new id (`muster cluster replace`)"
            );
        }
        return Ok(());
    }
    let members: Vec<Peer> = founded
        .members
        .iter()
        .map(|(id, address)| Peer::new(*id, address))
        .collect();
    bootstrap::bootstrap_with(handle, config.replica_id, members, stop).await
}
