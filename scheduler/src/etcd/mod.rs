//! What this replica says in etcd, where a site runs one, and how a new cluster is founded through it (docs/etcd.md). Nothing here
//! depends on etcd: it is told what the log says, and asked nothing but who founds a cluster that does not exist yet.

mod founding;
mod plan;
mod source;

use std::fs;

use muster_engine::state::State;
use muster_etcd::records::{FORMAT, Replica};
use muster_etcd::{Etcd, Publisher, Standing};
use muster_raft_store::Handle;
use tokio::sync::watch;

pub(crate) use founding::found;

use plan::Plan;
use source::Source;

use crate::config::SchedulerConfig;
use crate::error::Error;

/// Where the kernel tells the machine's name.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// Whether etcd works; none where it is not used.
pub(crate) type EtcdStanding = Option<watch::Receiver<Standing>>;

/// What publishes this replica; none without etcd.
pub(crate) fn publisher(
    config: &SchedulerConfig,
    handle: &Handle<State>,
) -> Result<Option<Publisher<Source>>, Error> {
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
    let source = Source::new(handle.clone(), config.replica_id, {
        mirrors.then(|| Plan::new(keys.clone()))
    });
    let etcd = Etcd::open(&config.etcd)?;
    let lease_seconds = config.etcd_publish.lease_seconds;
    Ok(Some(Publisher::new(etcd, keys, own, lease_seconds, source)))
}

/// For people alone: a machine that does not tell has an empty one.
fn host_name() -> String {
    fs::read_to_string(HOST_NAME).map_or_else(|_| String::new(), |name| name.trim().to_owned())
}
