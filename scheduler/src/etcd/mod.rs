//! Publication of this replica in etcd, and bootstrap of a new cluster through etcd (docs/etcd.md). The
//! scheduler does not depend on etcd: it publishes what is in the log, and reads etcd only to bootstrap a
//! cluster that does not exist yet.

mod bootstrap;
mod plan;
mod source;

use std::fs;

use muster_engine::state::State;
use muster_etcd::records::{FORMAT, Replica};
use muster_etcd::{Etcd, Health, Publisher};
use muster_raft_store::Handle;
use tokio::sync::watch;

pub(crate) use bootstrap::bootstrap;

use plan::Plan;
use source::ReplicaSource;

use crate::config::SchedulerConfig;
use crate::error::Error;

/// File with the machine's host name.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// Whether etcd works; `None` if it is not used.
pub(crate) type EtcdHealth = Option<watch::Receiver<Health>>;

/// The publisher of this replica; `None` without etcd.
pub(crate) fn publisher(
    config: &SchedulerConfig,
    handle: &Handle<State>,
) -> Result<Option<Publisher<ReplicaSource>>, Error> {
    if !config.etcd.is_on() {
        return Ok(None);
    }
    muster_etcd::describe_metrics();
    let keys = config.etcd.keys(&config.cluster_id);
    let own = Replica {
        format: FORMAT,
        id: config.replica_id.get(),
        address: config.advertised_address().to_owned(),
        name: host_name(),
    };
    let mirrors = config.etcd_publish.plan;
    let source = ReplicaSource::new(handle.clone(), config.replica_id, {
        mirrors.then(|| Plan::new(keys.clone()))
    });
    let etcd = Etcd::open(&config.etcd)?;
    let lease_seconds = config.etcd_publish.lease_seconds;
    Ok(Some(Publisher::new(etcd, keys, own, lease_seconds, source)))
}

/// Informational only; empty if the host name is unavailable.
fn host_name() -> String {
    fs::read_to_string(HOST_NAME).map_or_else(|_| String::new(), |name| name.trim().to_owned())
}
