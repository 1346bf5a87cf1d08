//! Calls to etcd: at one endpoint, and at the next when that one fails.

use std::time::Duration;

use http::uri::PathAndQuery;
use muster_tls::{Dialer, Tls};
use prost::Message;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::error::EtcdError;
use crate::settings::EtcdSettings;
use crate::wire;

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest wait for an answer: an etcd that elects a leader takes 1.5 s, measured.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// How often an idle connection is probed, and how long the answer may take: a watch has no other way to notice a dead host.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Bytes of the largest answer that is taken.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Keys that are read at once.
const PAGE_KEYS: i64 = 1_000;
/// How a certificate is refused here.
const WRONG_CERTIFICATE: &str = "invalid peer certificate";
/// Header with what a login gave.
const TOKEN: &str = "token";
/// Header that makes a member without a leader refuse, instead of keeping silent.
const NEEDS_LEADER: &str = "hasleader";

/// Keys with a common beginning, at one revision.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listing {
    pub(crate) revision: i64,
    pub(crate) kvs: Vec<wire::KeyValue>,
}

/// Speaks with etcd, with one endpoint at a time.
#[derive(Debug)]
pub struct Etcd {
    settings: EtcdSettings,
    dialer: Dialer,
    /// Endpoint that is asked now, as an index.
    at: usize,
    channel: Option<Channel>,
    token: Option<MetadataValue<Ascii>>,
    /// Whether anything was answered over this connection.
    has_answered: bool,
}

impl Etcd {
    /// Reads the certificates. Nothing is asked yet.
    ///
    /// # Errors
    /// What of the settings cannot be used.
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
            channel: None,
            token: None,
            has_answered: false,
        })
    }

    /// How many endpoints there are.
    pub(crate) fn endpoints(&self) -> usize {
        self.settings.endpoints.len()
    }

    /// One key; none if it is not there.
    pub(crate) async fn get(&mut self, key: &str) -> Result<Option<wire::KeyValue>, EtcdError> {
        let request = wire::RangeRequest {
            key: key.into(),
            ..wire::RangeRequest::default()
        };
        let answer: wire::RangeResponse = self.call(wire::RANGE, request).await?;
        Ok(answer.kvs.into_iter().next())
    }

    /// All keys that begin so, all of the same revision.
    pub(crate) async fn list(&mut self, prefix: &str) -> Result<Listing, EtcdError> {
        let mut listing = Listing::default();
        let mut from: Vec<u8> = prefix.into();
        loop {
            let request = wire::RangeRequest {
                key: from,
                range_end: wire::end_of(prefix),
                limit: PAGE_KEYS,
                revision: listing.revision,
            };
            let page: wire::RangeResponse = self.call(wire::RANGE, request).await?;
            if listing.revision == 0 {
                listing.revision = page.header.map_or(0, |header| header.revision);
            }
            listing.kvs.extend(page.kvs);
            match listing.kvs.last() {
                Some(last) if page.more => {
                    from = last.key.clone();
                    // The next key in order.
                    from.push(0);
                }
                _ => return Ok(listing),
            }
        }
    }

    /// Does all of it if all conditions hold, else nothing; whether they held.
    pub(crate) async fn txn(
        &mut self,
        compare: Vec<wire::Compare>,
        success: Vec<wire::RequestOp>,
    ) -> Result<bool, EtcdError> {
        let request = wire::TxnRequest { compare, success };
        let answer: wire::TxnResponse = self.call(wire::TXN, request).await?;
        Ok(answer.succeeded)
    }

    /// A new lease: its id, and the seconds that it holds, which may be more than were asked for.
    pub(crate) async fn grant(&mut self, ttl: i64) -> Result<(i64, i64), EtcdError> {
        let request = wire::LeaseGrantRequest { ttl };
        let answer: wire::LeaseGrantResponse = self.call(wire::LEASE_GRANT, request).await?;
        if answer.error.is_empty() {
            return Ok((answer.id, answer.ttl));
        }
        Err(EtcdError::Failed {
            endpoint: self.endpoint().to_owned(),
            reason: answer.error,
        })
    }

    /// Prolongs a lease.
    pub(crate) async fn keep_alive(&mut self, id: i64) -> Result<(), EtcdError> {
        let request = futures::stream::once(async move { wire::LeaseKeepAliveRequest { id } });
        let mut answers: Streaming<wire::LeaseKeepAliveResponse> =
            self.stream(wire::LEASE_KEEP_ALIVE, request).await?;
        let answer = timeout(CALL_TIMEOUT, answers.message()).await;
        let answer = self.judge(answer.map_err(|_| None).and_then(|it| it.map_err(Some)))?;
        match answer {
            Some(answer) if answer.ttl > 0 => Ok(()),
            _ => Err(EtcdError::LeaseOver),
        }
    }

    /// Ends a lease, and removes the keys under it.
    pub(crate) async fn revoke(&mut self, id: i64) -> Result<(), EtcdError> {
        let request = wire::LeaseRevokeRequest { id };
        let _: wire::LeaseRevokeResponse = self.call(wire::LEASE_REVOKE, request).await?;
        Ok(())
    }

    /// What happens to keys that begin so, after a revision. The stream ends with the connection.
    pub(crate) async fn watch(
        &mut self,
        prefix: &str,
        after: i64,
    ) -> Result<Streaming<wire::WatchResponse>, EtcdError> {
        let create = wire::WatchCreateRequest {
            key: prefix.into(),
            range_end: wire::end_of(prefix),
            start_revision: after + 1,
        };
        let create = wire::WatchRequest {
            create: Some(create),
        };
        // Open until the watch is dropped: etcd ends a watch whose requests end.
        let requests = futures::stream::iter([create]);
        let requests = futures::StreamExt::chain(requests, futures::stream::pending());
        self.stream(wire::WATCH, requests).await
    }

    /// Takes the next endpoint from now on.
    pub(crate) fn move_on(&mut self) {
        self.channel = None;
        self.token = None;
        self.at = (self.at + 1) % self.endpoints().max(1);
    }

    fn endpoint(&self) -> &str {
        self.settings.endpoints.get(self.at).map_or("", |it| it)
    }

    /// One question. After a refusal it logs in again and asks once more: what it had may have been too old.
    async fn call<Question, Answer>(
        &mut self,
        path: &'static str,
        question: Question,
    ) -> Result<Answer, EtcdError>
    where
        Question: Message + Clone + Send + Sync + 'static,
        Answer: Message + Default + Send + Sync + 'static,
    {
        let had_token = self.token.is_some();
        match self.call_once(path, question.clone()).await {
            Err(EtcdError::Denied { .. }) if had_token => self.call_once(path, question).await,
            outcome => outcome,
        }
    }

    async fn call_once<Question, Answer>(
        &mut self,
        path: &'static str,
        question: Question,
    ) -> Result<Answer, EtcdError>
    where
        Question: Message + Send + Sync + 'static,
        Answer: Message + Default + Send + Sync + 'static,
    {
        let (channel, token) = self.ready().await?;
        let asked = unary(channel, path, with_headers(question, token));
        let answered = timeout(CALL_TIMEOUT, asked).await;
        self.judge(answered.map_err(|_| None).and_then(|it| it.map_err(Some)))
    }

    async fn stream<Question, Answer>(
        &mut self,
        path: &'static str,
        questions: impl futures::Stream<Item = Question> + Send + 'static,
    ) -> Result<Streaming<Answer>, EtcdError>
    where
        Question: Message + Send + Sync + 'static,
        Answer: Message + Default + Send + Sync + 'static,
    {
        let (channel, token) = self.ready().await?;
        let asked = async {
            let mut grpc = grpc(channel).await?;
            let codec: ProstCodec<Question, Answer> = ProstCodec::default();
            let request = with_headers(questions, token);
            let answers = grpc
                .streaming(request, PathAndQuery::from_static(path), codec)
                .await?;
            Ok(answers.into_inner())
        };
        let answered = timeout(CALL_TIMEOUT, asked).await;
        self.judge(answered.map_err(|_| None).and_then(|it| it.map_err(Some)))
    }

    /// What an answer means: none is silence. After a failure that is the endpoint's, the next one is asked.
    fn judge<Answer>(
        &mut self,
        answer: Result<Answer, Option<Status>>,
    ) -> Result<Answer, EtcdError> {
        let status = match answer {
            Ok(answer) => {
                self.has_answered = true;
                return Ok(answer);
            }
            Err(status) => status,
        };
        let endpoint = self.endpoint();
        let error = match status {
            Some(status) => EtcdError::answered(endpoint, &status),
            None => EtcdError::Silent {
                endpoint: endpoint.to_owned(),
                within: CALL_TIMEOUT,
            },
        };
        let error = self.with_way_out(error);
        if error.is_of_endpoint() {
            self.move_on();
            return Err(error);
        }
        self.has_answered = true;
        if matches!(error, EtcdError::Denied { .. }) {
            // It may be too old.
            self.token = None;
        }
        Err(error)
    }

    /// A connection to the endpoint that is asked now, and what a login gave there.
    async fn ready(&mut self) -> Result<(Channel, Option<MetadataValue<Ascii>>), EtcdError> {
        let channel = match &self.channel {
            Some(channel) => channel.clone(),
            None => self.connect().await?,
        };
        self.channel = Some(channel.clone());
        if let (Some(user), None) = (self.settings.user.clone(), &self.token) {
            self.token = Some(self.log_in(channel.clone(), user).await?);
        }
        Ok((channel, self.token.clone()))
    }

    async fn connect(&mut self) -> Result<Channel, EtcdError> {
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
            self.move_on();
            let endpoint = named;
            self.with_way_out(EtcdError::Unreachable { endpoint, reason })
        })
    }

    /// What may be about certificates names the option that says of them. etcd refuses one only after the connection is open, and then
    /// the connection may break before its reason is heard.
    fn with_way_out(&self, error: EtcdError) -> EtcdError {
        let EtcdError::Unreachable { endpoint, reason } = error else {
            return error;
        };
        let is_closed_to_us = self.settings.ca.is_some() && !self.has_answered;
        let way_out = if reason.contains(WRONG_CERTIFICATE) {
            "; `etcd.ca` is to hold who vouches for it"
        } else if !is_closed_to_us || self.channel.is_none() {
            ""
        } else if self.settings.certificate.is_none() {
            "; it may ask for a certificate, and `etcd.certificate` is not set"
        } else {
            "; it may not take `etcd.certificate`"
        };
        let reason = format!("{reason}{way_out}");
        EtcdError::Unreachable { endpoint, reason }
    }

    async fn log_in(
        &mut self,
        channel: Channel,
        name: String,
    ) -> Result<MetadataValue<Ascii>, EtcdError> {
        let path = self.settings.password_file.clone().unwrap_or_default();
        let password = tokio::fs::read_to_string(&path).await;
        let password = password.map_err(|source| EtcdError::Password {
            path: path.display().to_string(),
            source,
        })?;
        let question = wire::AuthenticateRequest {
            name,
            password: password.trim_end_matches(['\r', '\n']).to_owned(),
        };
        let asked = unary(channel, wire::AUTHENTICATE, Request::new(question));
        let answered = timeout(CALL_TIMEOUT, asked).await;
        let answer: wire::AuthenticateResponse =
            self.judge(answered.map_err(|_| None).and_then(|it| it.map_err(Some)))?;
        answer.token.parse().map_err(|_| EtcdError::Failed {
            endpoint: self.endpoint().to_owned(),
            reason: "its token is no header".to_owned(),
        })
    }
}

async fn grpc(channel: Channel) -> Result<Grpc<Channel>, Status> {
    let mut grpc = Grpc::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
    let ready = grpc.ready().await;
    ready.map_err(|error| Status::unavailable(innermost(&error)))?;
    Ok(grpc)
}

async fn unary<Question, Answer>(
    channel: Channel,
    path: &'static str,
    request: Request<Question>,
) -> Result<Answer, Status>
where
    Question: Message + Send + Sync + 'static,
    Answer: Message + Default + Send + Sync + 'static,
{
    let mut grpc = grpc(channel).await?;
    let codec: ProstCodec<Question, Answer> = ProstCodec::default();
    let answer = grpc
        .unary(request, PathAndQuery::from_static(path), codec)
        .await?;
    Ok(answer.into_inner())
}

fn with_headers<Question>(
    question: Question,
    token: Option<MetadataValue<Ascii>>,
) -> Request<Question> {
    let mut request = Request::new(question);
    let headers = request.metadata_mut();
    headers.insert(NEEDS_LEADER, MetadataValue::from_static("true"));
    if let Some(token) = token {
        headers.insert(TOKEN, token);
    }
    request
}

/// What lies below "transport error".
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
