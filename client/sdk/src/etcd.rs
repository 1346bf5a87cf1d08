//! Replicas that etcd names.

use std::sync::Weak;

use muster_etcd::{Discovered, Etcd, EtcdError, EtcdSettings, discover, follow};
use muster_tls::is_loopback;
use tokio::task::JoinHandle;

use crate::client::Shared;
use crate::config::ClientConfig;
use crate::error::ClientError;

/// The settings with the replicas that etcd names before those that are given. Where etcd is, is taken out of them: whoever makes
/// another client of them means the replicas that they name.
///
/// # Errors
/// Where nobody is known, and etcd names nobody.
pub(crate) async fn discovered(
    mut config: ClientConfig,
) -> Result<(ClientConfig, Option<EtcdSettings>), ClientError> {
    let Some(settings) = config.etcd.take() else {
        return Ok((config, None));
    };
    let found = match ask(&settings, &config.cluster_id).await {
        Ok(found) => found.addresses(),
        Err(EtcdError::Settings(broken)) => {
            return Err(ClientError::Config {
                field: "etcd",
                rule: broken.to_string(),
            });
        }
        Err(error) if config.addresses.is_empty() => {
            return Err(ClientError::NotFound {
                reason: error.to_string(),
            });
        }
        Err(error) => {
            tracing::warn!(%error, "the replicas that are configured are tried");
            Vec::new()
        }
    };
    if found.is_empty() && config.addresses.is_empty() {
        let keys = settings.keys(&config.cluster_id);
        return Err(ClientError::NotFound {
            reason: format!("there is no replica under {}", keys.replicas()),
        });
    }
    let given = std::mem::replace(&mut config.addresses, found);
    let new = { given.into_iter() }.filter(|address| !config.addresses.contains(address));
    let new: Vec<String> = new.collect();
    config.addresses.extend(new);
    Ok((config, Some(settings)))
}

async fn ask(settings: &EtcdSettings, cluster_id: &str) -> Result<Discovered, EtcdError> {
    let mut etcd = Etcd::open(settings)?;
    discover(&mut etcd, &settings.keys(cluster_id)).await
}

/// Learns the replicas that etcd names, as long as there is a client.
pub(crate) fn follow_for(
    config: &ClientConfig,
    settings: &EtcdSettings,
    client: Weak<Shared>,
) -> Result<JoinHandle<()>, ClientError> {
    let etcd = Etcd::open(settings).map_err(|error| ClientError::Config {
        field: "etcd",
        rule: error.to_string(),
    })?;
    // A token is sent over encrypted connections alone, and to this machine.
    let trusts = config.token.is_none() || config.tls.is_on();
    let tell = move |found: &Discovered| {
        let Some(client) = client.upgrade() else {
            return;
        };
        let addresses = found.addresses();
        let trusted = { addresses.iter() }.filter(|address| trusts || is_loopback(address));
        client
            .calls
            .roster()
            .learn(trusted.map(String::as_str), None);
    };
    let keys = settings.keys(&config.cluster_id);
    Ok(tokio::spawn(follow(etcd, keys, tell)))
}
