//! Replicas listed in etcd.

use std::sync::Weak;

use muster_etcd::{Discovered, Etcd, EtcdError, EtcdSettings, discover, follow};
use muster_tls::is_loopback;
use tokio::task::JoinHandle;

use crate::client::Shared;
use crate::config::ClientConfig;
use crate::error::ClientError;

/// Returns the settings with the replicas listed in etcd before the given ones. The etcd settings are
/// removed: another client created from them uses the replicas they contain.
///
/// # Errors
/// No replica is given, and etcd lists none.
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
            tracing::warn!(%error, "trying the configured replicas");
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
    let new: Vec<String> = given
        .into_iter()
        .filter(|address| !config.addresses.contains(address))
        .collect();
    config.addresses.extend(new);
    Ok((config, Some(settings)))
}

async fn ask(settings: &EtcdSettings, cluster_id: &str) -> Result<Discovered, EtcdError> {
    let mut etcd = Etcd::open(settings)?;
    discover(&mut etcd, &settings.keys(cluster_id)).await
}

/// Follows the replicas listed in etcd as long as the client exists.
pub(crate) fn follow_for(
    config: &ClientConfig,
    settings: &EtcdSettings,
    client: Weak<Shared>,
) -> Result<JoinHandle<()>, ClientError> {
    let etcd = Etcd::open(settings).map_err(|error| ClientError::Config {
        field: "etcd",
        rule: error.to_string(),
    })?;
    // A token is sent only over encrypted connections, and to this machine.
    let trusts = config.token.is_none() || config.tls.is_on();
    let on_change = move |found: &Discovered| {
        let Some(client) = client.upgrade() else {
            return;
        };
        let addresses = found.addresses();
        let trusted = addresses
            .iter()
            .filter(|address| trusts || is_loopback(address));
        client
            .calls
            .roster()
            .learn(trusted.map(String::as_str), None);
    };
    let keys = settings.keys(&config.cluster_id);
    Ok(tokio::spawn(follow(etcd, keys, on_change)))
}
