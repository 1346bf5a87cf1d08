//! Replicas that etcd names.

use muster_etcd::{Discovered, Etcd, EtcdError, follow};
use muster_tls::is_loopback;
use tokio_util::sync::CancellationToken;

use crate::config::WorkerConfig;
use crate::joining;
use crate::replicas::KnownReplicas;

/// Learns the replicas that etcd names until `stop`, beside those that are known. What a worker runs does not depend on it: a leader
/// that is known is followed, and names the others itself.
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
    let tell = move |found: &Discovered| replicas.know(&trusted(found.addresses(), trusts));
    tokio::spawn(
        stop.clone()
            .run_until_cancelled_owned(follow(etcd, keys, tell)),
    );
    Ok(())
}

/// Those whom this worker may obey: whoever answers may run everything here, and without certificates only this machine is sure.
fn trusted(mut addresses: Vec<String>, trusts: bool) -> Vec<String> {
    let all = addresses.len();
    addresses.retain(|address| trusts || is_loopback(address));
    if addresses.len() < all {
        tracing::warn!(
            "etcd names replicas on other machines, and without TLS whoever answers there may run everything here: they are not \
             asked. Set `tls` (docs/security.md), or allow it by `--insecure`"
        );
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_certificates_only_this_machine_is_obeyed() {
        let all = ["127.0.0.1:7400", "a:7400"].map(str::to_owned).to_vec();
        assert_eq!(trusted(all.clone(), true), all);
        assert_eq!(trusted(all, false), ["127.0.0.1:7400"]);
    }
}
