//! Replicas registered in etcd.

use muster_etcd::{Discovered, Etcd, EtcdError, follow};
use muster_monitor::replicas::KnownReplicas;
use muster_tls::is_loopback;
use tokio_util::sync::CancellationToken;

use crate::config::WorkerConfig;
use crate::connection::joining;

/// Adds the replicas registered in etcd to the known ones until `stop`. A worker does not depend on etcd:
/// it follows a known leader, which sends the other addresses.
pub(crate) fn learn(
    config: &WorkerConfig,
    replicas: KnownReplicas,
    stop: &CancellationToken,
) -> Result<(), EtcdError> {
    if !config.etcd.is_on() {
        return Ok(());
    }
    muster_etcd::describe_metrics();
    let etcd = Etcd::open(&config.etcd)?;
    let keys = config.etcd.keys(&config.cluster_id);
    let trusts = config.insecure || config.tls.is_on() || joining::joins(config);
    let update =
        move |found: &Discovered| replicas.set_learned(&trusted(found.addresses(), trusts));
    tokio::spawn(
        stop.clone()
            .run_until_cancelled_owned(follow(etcd, keys, update)),
    );
    Ok(())
}

/// Replicas that this worker may obey: they can run anything on this host, so without certificates only
/// loopback addresses are trusted.
fn trusted(mut addresses: Vec<String>, trusts: bool) -> Vec<String> {
    let all = addresses.len();
    addresses.retain(|address| trusts || is_loopback(address));
    if addresses.len() < all {
        tracing::warn!(
            "ignored replicas in etcd that are on other machines: without TLS any process that answers there \
             can run anything on this host. Set `tls` (docs/security.md), or allow it by `--insecure`"
        );
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_certificates_only_loopback_replicas_are_trusted() {
        let all = ["127.0.0.1:7400", "a:7400"].map(str::to_owned).to_vec();
        assert_eq!(trusted(all.clone(), true), all);
        assert_eq!(trusted(all, false), ["127.0.0.1:7400"]);
    }
}
