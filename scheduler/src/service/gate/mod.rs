//! Authentication and authorization in front of all services.
//!
//! Where a replica has certificates, every call is authenticated by a certificate or a token, and [`rights`]
//! lists the required role. Without certificates every caller has full access: settings allow that on
//! loopback alone, or with an explicit option. Every call passes here, and is counted and timed here.

mod authentication;
mod byte_limits;
mod caller;
mod calls;
mod federated;
mod rate_limits;
mod rights;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task;
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use metrics::counter;
use muster_engine::state::State;
use muster_model::access::Role;
use muster_proto::status;
use muster_tls::{SecuredPeer, jwt};
use tokio::time::Instant;
use tonic::body::Body;
use tonic::transport::server::TcpConnectInfo;
use tonic::{Code, Status};
use tower::{Layer, Service};

use crate::audit_log::Record;
use crate::config::Limits;
use crate::metrics::names;
use crate::service::context::Context;
use byte_limits::{ByteLimits, ByteShare, Limit, Sizes, measured};
pub(crate) use caller::{Caller, Scope, caller_of};
use calls::Call;
pub(crate) use calls::begin_counting;
use federated::Federated;
pub(crate) use federated::Provider;
use rate_limits::{Allowance, Rates};
pub(crate) use rights::Method;
use rights::Need;

/// Reason of a refusal because of too many calls.
const TOO_MANY_CALLS: &str = "TOO_MANY_CALLS";

/// Calls per second of unauthenticated callers of one address: a rack of workers that join at once is served
/// in seconds, but guessing tokens is not feasible.
const UNAUTHENTICATED_CALLS_PER_SECOND: u32 = 20;
/// Burst of such calls after a pause.
const UNAUTHENTICATED_CALLS_AT_ONCE: u32 = 200;
const STRANGERS: Allowance = Allowance {
    per_second: UNAUTHENTICATED_CALLS_PER_SECOND,
    at_once: UNAUTHENTICATED_CALLS_AT_ONCE,
};

/// Bytes of one unauthenticated request: a certificate signing request with a token has a few thousand.
const UNAUTHENTICATED_REQUEST_BYTES_MAX: u64 = 64 << 10;
/// Bytes of all unanswered unauthenticated requests of one address: enough for a rack of workers that join at
/// once.
const UNAUTHENTICATED_OUTSTANDING_BYTES_MAX: u64 = 4 << 20;

/// Layer that puts a [`Gate`] in front of services.
#[derive(Clone)]
pub(crate) struct GateLayer {
    context: Context,
    rates: Arc<Rates>,
    sizes: Arc<Sizes>,
}

impl GateLayer {
    pub(crate) fn new(context: Context) -> Self {
        Self {
            context,
            rates: Arc::default(),
            sizes: Arc::default(),
        }
    }
}

impl<Inner> Layer<Inner> for GateLayer {
    type Service = Gate<Inner>;

    fn layer(&self, inner: Inner) -> Gate<Inner> {
        Gate {
            layer: self.clone(),
            inner,
        }
    }
}

/// Admits authorized calls.
#[derive(Clone)]
pub(crate) struct Gate<Inner> {
    layer: GateLayer,
    inner: Inner,
}

type Answering<Answer, Error> = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>;

impl<Inner, AnswerBody> Service<Request<Body>> for Gate<Inner>
where
    Inner: Service<Request<Body>, Response = Response<AnswerBody>>,
    Inner::Future: Send + 'static,
    Inner::Error: 'static,
    AnswerBody: Default + 'static,
{
    type Response = Inner::Response;
    type Error = Inner::Error;
    type Future = Answering<Self::Response, Self::Error>;

    fn poll_ready(
        &mut self,
        context: &mut task::Context<'_>,
    ) -> task::Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let peer = request.extensions().get::<SecuredPeer>().cloned();
        let method = request.uri().path().to_owned();
        let method = method.as_str();
        let call = Call::begin(method);
        let from = peer.as_ref().and_then(|peer| peer.address);
        let passed = match &peer {
            None if self.layer.context.config.tls.is_on() => Err(unsecured()),
            None => Ok(Caller::AuthenticationOff),
            Some(peer) => self.layer.pass(method, peer, request.headers()),
        };
        match passed {
            Ok(caller) => {
                if let Some(address) = from {
                    request.extensions_mut().insert(connection(address));
                }
                let byte_share = self.layer.byte_share(method, &caller, from);
                request.extensions_mut().insert(caller);
                let byte_share = byte_share.map(Arc::new);
                let request = match &byte_share {
                    Some(byte_share) => request.map(|body| measured(body, Arc::clone(byte_share))),
                    None => request,
                };
                let answered = self.inner.call(request);
                Box::pin(async move {
                    let answer = answered.await;
                    drop(byte_share);
                    if let Ok(answer) = &answer {
                        call.answered(answer.headers());
                    }
                    answer
                })
            }
            Err(refusal) => {
                let refused = refuse(self.layer.context.clone(), method.to_owned(), refusal, from);
                Box::pin(async move {
                    let answer = refused.await.into_http();
                    call.answered(answer.headers());
                    Ok(answer)
                })
            }
        }
    }
}

/// A refusal, and the authenticated caller as named in the audit log, if the refusal is to be recorded.
struct Refusal {
    caller: Option<String>,
    status: Status,
}

impl GateLayer {
    /// The caller, if it may make this call now.
    fn pass(
        &self,
        method: &str,
        peer: &SecuredPeer,
        headers: &HeaderMap,
    ) -> Result<Caller, Refusal> {
        let need = rights::need(method);
        let handle = &self.context.handle;
        let proven = self.federated(headers).and_then(|federated| {
            handle.with_state(|state| identify(state, federated, peer, headers))
        });
        let (caller, role) = match proven {
            Ok(proven) => proven,
            // A probe needs no authentication.
            Err(_) if need == Need::Anyone => {
                if rights::is_costly(method) {
                    self.limit_unauthenticated(peer)?;
                }
                return Ok(Caller::Unauthenticated);
            }
            Err(status) => {
                return Err(Refusal {
                    caller: None,
                    status,
                });
            }
        };
        if !need.is_met_by(&caller, role) {
            return Err(too_weak(&caller, role, need));
        }
        self.limit_user(&caller)?;
        Ok(caller)
    }

    /// The user of an identity provider's token, if one was sent.
    fn federated(&self, headers: &HeaderMap) -> Result<Option<Federated>, Status> {
        let shown = authentication::bearer(headers).filter(|text| jwt::is_jwt(text));
        let (Some(provider), Some(text)) = (&self.context.provider, shown) else {
            return Ok(None);
        };
        provider.prove(text, self.context.handle.now_ms()).map(Some)
    }

    /// The byte counter of a call, if bytes are counted for its caller.
    fn byte_share(
        &self,
        method: &str,
        caller: &Caller,
        from: Option<SocketAddr>,
    ) -> Option<ByteShare> {
        let limits = self.context.settings.borrow().limits;
        let (sender, room) = counted(method, caller, from, &limits)?;
        Some(ByteShare::new(&self.sizes, &sender, room))
    }

    /// Refuses an address with too many unauthenticated calls lately.
    fn limit_unauthenticated(&self, peer: &SecuredPeer) -> Result<(), Refusal> {
        // Contains a space, as no user's name does.
        let who = unauthenticated_name(peer.address);
        let taken = self.rates.take(&who, Instant::now(), STRANGERS);
        taken.map_err(|wait| {
            let who = "unauthenticated callers of that address";
            let limit_name = "UNAUTHENTICATED_CALLS_PER_SECOND";
            too_many(who, STRANGERS.per_second, limit_name, wait)
        })
    }

    /// Refuses a user with too many calls lately. Workers and replicas are not limited.
    fn limit_user(&self, caller: &Caller) -> Result<(), Refusal> {
        let Some(name) = caller.name() else {
            return Ok(());
        };
        let limits = self.context.settings.borrow().limits;
        let allowance = Allowance {
            per_second: limits.calls_per_second_per_user,
            at_once: limits.calls_at_once_per_user,
        };
        let taken = self.rates.take(name, Instant::now(), allowance);
        taken.map_err(|wait| {
            let who = caller.to_string();
            let limit_name = "calls_per_second_per_user";
            too_many(&who, allowance.per_second, limit_name, wait)
        })
    }
}

/// Name and limits under which the bytes of a call are counted; `None` for workers and replicas, which are
/// not limited. The input of an exec session lasts as long as its command, and its flow control limits it.
fn counted(
    method: &str,
    caller: &Caller,
    from: Option<SocketAddr>,
    limits: &Limits,
) -> Option<(String, ByteLimits)> {
    let limit = |bytes, name| Limit { bytes, name };
    if *caller == Caller::Unauthenticated {
        let room = ByteLimits {
            of_request: limit(
                UNAUTHENTICATED_REQUEST_BYTES_MAX,
                "UNAUTHENTICATED_REQUEST_BYTES_MAX",
            ),
            outstanding: limit(
                UNAUTHENTICATED_OUTSTANDING_BYTES_MAX,
                "UNAUTHENTICATED_OUTSTANDING_BYTES_MAX",
            ),
        };
        return Some((unauthenticated_name(from), room));
    }
    let is_counted = caller.name().is_some() && method != "/muster.v1.JobService/Exec";
    let room = ByteLimits {
        of_request: limit(
            limits.request_bytes_per_user_max,
            "limits.request_bytes_per_user_max",
        ),
        outstanding: limit(
            limits.outstanding_bytes_per_user_max,
            "limits.outstanding_bytes_per_user_max",
        ),
    };
    is_counted.then(|| (caller.to_string(), room))
}

/// Name of an unauthenticated caller: its address.
fn unauthenticated_name(from: Option<SocketAddr>) -> String {
    let from = from.map_or_else(String::new, |address| address.ip().to_string());
    format!("unauthenticated callers of {from}")
}

/// The caller and its role.
fn identify(
    state: &State,
    federated: Option<Federated>,
    peer: &SecuredPeer,
    headers: &HeaderMap,
) -> Result<(Caller, Option<Role>), Status> {
    let caller = match federated {
        Some(federated) => authentication::federated(state, federated)?,
        None => authentication::caller(state, peer, headers)?,
    };
    let role = caller.role(state);
    Ok((caller, role))
}

fn too_many(who: &str, limit: u32, limit_name: &str, wait: Duration) -> Refusal {
    let message = format!("{who} exceeded {limit} calls per second ({limit_name})");
    let metadata = [
        ("limit_name", limit_name.to_owned()),
        ("limit", limit.to_string()),
    ];
    let code = Code::ResourceExhausted;
    Refusal {
        status: status::retryable(code, TOO_MANY_CALLS, &message, &metadata, wait),
        caller: None,
    }
}

/// A connection without TLS information is refused where all connections are encrypted.
fn unsecured() -> Refusal {
    Refusal {
        status: Status::internal("the connection has no TLS information"),
        caller: None,
    }
}

fn too_weak(caller: &Caller, role: Option<Role>, need: Need) -> Refusal {
    let who = caller.to_string();
    let message = match role {
        Some(role) => {
            format!("{who} has role `{role}`, but this requires {need}: ask the cluster's admins")
        }
        None => format!("{who} may not do this: it requires {need}"),
    };
    let metadata = [("needed", need.to_string())];
    Refusal {
        status: status::error(Code::PermissionDenied, "ROLE_TOO_WEAK", &message, &metadata),
        caller: Some(caller.on_record(String::new())),
    }
}

/// Counts a refusal. Refusals of authenticated callers are recorded in the audit log too; unauthenticated
/// callers could flood it.
async fn refuse(
    context: Context,
    method: String,
    refusal: Refusal,
    from: Option<SocketAddr>,
) -> Status {
    let reason = status::ErrorReport::of(&refusal.status).reason;
    counter!(names::REFUSED_TOTAL, "reason" => reason).increment(1);
    let name = method.rsplit('/').next().unwrap_or_default();
    match refusal.caller {
        Some(caller) => {
            let record = Record::of_call(name, &caller, String::new(), from);
            context
                .record_audit(record.answered_with(Some(&refusal.status)))
                .await;
        }
        None => {
            let (from, why) = (from.map(|from| from.to_string()), refusal.status.message());
            tracing::debug!(method = name, from, why, "unauthenticated call refused");
        }
    }
    refusal.status
}

/// Connection information as on unencrypted connections: the caller's address.
fn connection(address: SocketAddr) -> TcpConnectInfo {
    TcpConnectInfo {
        local_addr: None,
        remote_addr: Some(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_per_user_and_for_unauthenticated_callers_per_address() {
        let limits = Limits::default();
        let health = "/grpc.health.v1.Health/Check";
        let sender = |method: &str, caller: &Caller, from: &str| {
            let from = from.parse().ok();
            let (sender, room) = counted(method, caller, from, &limits)?;
            Some((sender, room.of_request.bytes, room.outstanding.bytes))
        };
        let near = sender(health, &Caller::Unauthenticated, "10.0.0.1:7");
        let (who, of_request, outstanding) = near.clone().unwrap_or_default();
        assert!(who.ends_with("callers of 10.0.0.1"), "{who}");
        assert_eq!((of_request, outstanding), (64 << 10, 4 << 20));
        assert_eq!(sender(health, &Caller::Unauthenticated, "10.0.0.1:8"), near);
        assert_ne!(sender(health, &Caller::Unauthenticated, "10.0.0.2:7"), near);
        let ada = Caller::User("ada".to_owned());
        let of_ada = (
            "user `ada`".to_owned(),
            limits.request_bytes_per_user_max,
            limits.outstanding_bytes_per_user_max,
        );
        assert_eq!(sender(health, &ada, "10.0.0.1:7"), Some(of_ada));
        assert_eq!(
            sender("/muster.v1.JobService/Exec", &ada, "10.0.0.1:7"),
            None
        );
        for trusted in [Caller::Replica, Caller::Worker("gpu-1".to_owned())] {
            assert_eq!(sender(health, &trusted, "10.0.0.1:7"), None);
        }
    }

    #[test]
    fn a_refusal_is_audited_under_the_name_that_audit_queries_use() {
        let user = Caller::User("bob".to_owned());
        for (caller, role, name) in [
            (user, Some(Role::Viewer), "bob"),
            (Caller::Worker("gpu-1".to_owned()), None, "worker gpu-1"),
        ] {
            let refusal = too_weak(&caller, role, Need::Role(Role::Admin));
            assert_eq!(refusal.caller.as_deref(), Some(name));
        }
    }
}
