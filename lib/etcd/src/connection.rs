//! Connection to etcd: one endpoint at a time, and the next when it fails.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use etcd_client::{
    Channel, Client, Compare, ConnectOptions, GetOptions, KeyValue, Txn, TxnOp, WatchOptions,
    WatchStream,
};
use muster_tls::{Dialer, Tls};
use tokio::time::timeout;
use tonic::transport::Endpoint;

use crate::error::EtcdError;
use crate::settings::EtcdSettings;

/// Connect timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout of a call: an election within etcd takes 1.5 s, measured.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval of probes on an idle connection, and the probe's timeout: a watch has no other way to notice a
/// dead host.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Largest accepted answer in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Keys read per request.
const PAGE_KEYS: i64 = 1_000;
/// Error text of a rejected certificate.
const WRONG_CERTIFICATE: &str = "invalid peer certificate";

/// Keys with a common prefix, at one revision.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listing {
    pub(crate) revision: i64,
    pub(crate) kvs: Vec<KeyValue>,
}

/// Connection to etcd, to one endpoint at a time: a client of all endpoints would hide which one failed.
pub struct Etcd {
    settings: EtcdSettings,
    dialer: Dialer,
    /// Index of the current endpoint.
    at: usize,
    /// Client connected to that endpoint, and logged in if a user is set.
    client: Option<Client>,
    /// Whether any call was answered over this connection.
    has_answered: bool,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("endpoint", &self.endpoint())
            .field("is_connected", &self.client.is_some())
            .finish_non_exhaustive()
    }
}

impl Etcd {
    /// Reads the certificates. No connection is made yet.
    ///
    /// # Errors
    /// The invalid setting.
    pub fn open(settings: &EtcdSettings) -> Result<Self, EtcdError> {
        settings.validate()?;
        let tls = Tls::load(&settings.tls())?;
        if tokio::runtime::Handle::try_current().is_ok() {
            tls.iter().for_each(Tls::keep_current);
        }
        Ok(Self {
            settings: settings.clone(),
            dialer: Dialer::to_foreign(tls),
            at: 0,
            client: None,
            has_answered: false,
        })
    }

    /// Number of endpoints.
    pub(crate) fn endpoints(&self) -> usize {
        self.settings.endpoints.len()
    }

    /// Reads one key; none if it does not exist.
    pub(crate) async fn get(&mut self, key: &str) -> Result<Option<KeyValue>, EtcdError> {
        let get = |mut client: Client| async move { client.get(key, None).await };
        let mut answer = self.call(get).await?;
        Ok(answer.take_kvs().into_iter().next())
    }

    /// Reads all keys with a prefix, at one revision.
    pub(crate) async fn list(&mut self, prefix: &str) -> Result<Listing, EtcdError> {
        let mut listing = Listing::default();
        let mut from: Vec<u8> = prefix.into();
        loop {
            let page = GetOptions::new()
                .with_range(end_of(prefix))
                .with_limit(PAGE_KEYS)
                .with_revision(listing.revision);
            let get = |client: Client| {
                let (from, page) = (from.clone(), page.clone());
                let mut kv = client
                    .kv_client()
                    .max_decoding_message_size(ANSWER_BYTES_MAX);
                async move { kv.get(from, Some(page)).await }
            };
            let mut page = self.call(get).await?;
            if listing.revision == 0 {
                listing.revision = page.header().map_or(0, |header| header.revision());
            }
            listing.kvs.extend(page.take_kvs());
            match listing.kvs.last() {
                Some(last) if page.more() => {
                    from = last.key().to_owned();
                    // The next key in order.
                    from.push(0);
                }
                _ => return Ok(listing),
            }
        }
    }

    /// Executes all operations if all conditions hold, else none; returns whether they held.
    pub(crate) async fn txn(
        &mut self,
        conditions: Vec<Compare>,
        operations: Vec<TxnOp>,
    ) -> Result<bool, EtcdError> {
        let txn = Txn::new().when(conditions).and_then(operations);
        let submit = |mut client: Client| {
            let txn = txn.clone();
            async move { client.txn(txn).await }
        };
        Ok(self.call(submit).await?.succeeded())
    }

    /// Grants a lease; returns its id and its duration in seconds, which may be longer than requested.
    pub(crate) async fn grant(&mut self, ttl: i64) -> Result<(i64, i64), EtcdError> {
        let grant = |mut client: Client| async move { client.lease_grant(ttl, None).await };
        let answer = self.call(grant).await?;
        if answer.error().is_empty() {
            return Ok((answer.id(), answer.ttl()));
        }
        Err(EtcdError::Failed {
            endpoint: self.endpoint().to_owned(),
            reason: answer.error().to_owned(),
        })
    }

    /// Renews a lease.
    pub(crate) async fn keep_alive(&mut self, id: i64) -> Result<(), EtcdError> {
        // Only the keeper's first answer is used: the caller schedules renewals.
        let keep = |mut client: Client| async move { client.lease_keep_alive(id).await };
        self.call(keep).await.map(|_| ())
    }

    /// Revokes a lease, which removes the keys under it.
    pub(crate) async fn revoke(&mut self, id: i64) -> Result<(), EtcdError> {
        let revoke = |mut client: Client| async move { client.lease_revoke(id).await };
        self.call(revoke).await.map(|_| ())
    }

    /// Watches keys with a prefix, after a revision. The stream ends with the connection.
    pub(crate) async fn watch(
        &mut self,
        prefix: &str,
        after: i64,
    ) -> Result<WatchStream, EtcdError> {
        let options = WatchOptions::new()
            .with_prefix()
            .with_start_revision(after + 1);
        let watch = |mut client: Client| {
            let options = options.clone();
            async move { client.watch(prefix, Some(options)).await }
        };
        self.call(watch).await
    }

    /// Switches to the next endpoint.
    pub(crate) fn next_endpoint(&mut self) {
        self.client = None;
        self.at = (self.at + 1) % self.endpoints().max(1);
    }

    fn endpoint(&self) -> &str {
        self.settings.endpoints.get(self.at).map_or("", |it| it)
    }

    /// Performs one call. If it is denied, logs in again and retries once: the password may have changed.
    async fn call<Answer, Calling>(
        &mut self,
        request: impl Fn(Client) -> Calling,
    ) -> Result<Answer, EtcdError>
    where
        Calling: Future<Output = Result<Answer, etcd_client::Error>>,
    {
        let was_logged_in = self.client.is_some() && self.settings.user.is_some();
        match self.call_once(&request).await {
            Err(EtcdError::Denied { .. }) if was_logged_in => self.call_once(&request).await,
            outcome => outcome,
        }
    }

    async fn call_once<Answer, Calling>(
        &mut self,
        request: &impl Fn(Client) -> Calling,
    ) -> Result<Answer, EtcdError>
    where
        Calling: Future<Output = Result<Answer, etcd_client::Error>>,
    {
        let client = self.ready().await?;
        let answer = self.with_timeout(request(client)).await?;
        self.has_answered = true;
        Ok(answer)
    }

    /// Waits for an answer, with a timeout.
    async fn with_timeout<Answer>(
        &mut self,
        calling: impl Future<Output = Result<Answer, etcd_client::Error>>,
    ) -> Result<Answer, EtcdError> {
        match timeout(CALL_TIMEOUT, calling).await {
            Ok(outcome) => outcome.map_err(|error| {
                let error = EtcdError::from_call(self.endpoint(), &error);
                self.handle_failure(error)
            }),
            Err(_elapsed) => Err(self.handle_failure(EtcdError::TimedOut {
                endpoint: self.endpoint().to_owned(),
                within: CALL_TIMEOUT,
            })),
        }
    }

    /// Handles a failure: after a failure of the endpoint the next one is used.
    fn handle_failure(&mut self, error: EtcdError) -> EtcdError {
        let error = self.with_hint(error, true);
        if error.is_of_endpoint() {
            self.next_endpoint();
            return error;
        }
        self.has_answered = true;
        if matches!(error, EtcdError::Denied { .. }) {
            // The rights of the current login may be outdated.
            self.client = None;
        }
        error
    }

    /// Returns a client connected to the current endpoint and logged in.
    async fn ready(&mut self) -> Result<Client, EtcdError> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let channel = self.connect().await?;
        let mut options = ConnectOptions::new()
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some(user) = self.settings.user.clone() {
            options = options.with_user(user, self.password().await?);
        }
        let logged_in = Client::from_channel(Channel::Tonic(channel), Some(options));
        // Without a user no request is made here.
        let client = self.with_timeout(logged_in).await?;
        self.client = Some(client.clone());
        Ok(client)
    }

    async fn connect(&mut self) -> Result<tonic::transport::Channel, EtcdError> {
        let named = self.endpoint().to_owned();
        let address = self.settings.address(&named)?;
        let endpoint = Endpoint::from_shared(format!("http://{address}"));
        let opened = match endpoint {
            Ok(endpoint) => {
                let endpoint = endpoint
                    .connect_timeout(CONNECT_TIMEOUT)
                    .tcp_nodelay(true)
                    .http2_keep_alive_interval(KEEP_ALIVE)
                    .keep_alive_timeout(KEEP_ALIVE);
                let opened = timeout(CALL_TIMEOUT, self.dialer.connect(&endpoint)).await;
                match opened {
                    Ok(opened) => opened.map_err(|error| innermost(&error)),
                    Err(_) => Err("the connection was not opened in time".to_owned()),
                }
            }
            Err(error) => Err(innermost(&error)),
        };
        self.has_answered = false;
        opened.map_err(|reason| {
            self.next_endpoint();
            let endpoint = named;
            self.with_hint(EtcdError::Unreachable { endpoint, reason }, false)
        })
    }

    /// Appends the relevant option to errors that may concern certificates. etcd rejects a certificate only
    /// after the connection is open, and then the connection may break before the reason arrives.
    fn with_hint(&self, error: EtcdError, was_open: bool) -> EtcdError {
        let EtcdError::Unreachable { endpoint, reason } = error else {
            return error;
        };
        let is_closed_to_us = self.settings.ca.is_some() && !self.has_answered;
        let hint = if reason.contains(WRONG_CERTIFICATE) {
            "; `etcd.ca` must contain its authority"
        } else if !is_closed_to_us || !was_open {
            ""
        } else if self.settings.certificate.is_none() {
            "; it may require a certificate, and `etcd.certificate` is not set"
        } else {
            "; it may not accept `etcd.certificate`"
        };
        let reason = format!("{reason}{hint}");
        EtcdError::Unreachable { endpoint, reason }
    }

    async fn password(&self) -> Result<String, EtcdError> {
        let path = self.settings.password_file.clone().unwrap_or_default();
        let password =
            tokio::fs::read_to_string(&path)
                .await
                .map_err(|source| EtcdError::Password {
                    path: path.display().to_string(),
                    source,
                })?;
        Ok(password.trim_end_matches(['\r', '\n']).to_owned())
    }
}

/// End of the key range of a prefix: the prefix with its last byte incremented. Our prefixes end in `/`.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end: Vec<u8> = prefix.into();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // All keys.
    vec![0]
}

/// Message of the innermost error, below "transport error".
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_range_follows_all_its_keys() {
        assert_eq!(end_of("/muster/a/"), b"/muster/a0");
        assert_eq!(end_of(""), [0]);
    }
}
