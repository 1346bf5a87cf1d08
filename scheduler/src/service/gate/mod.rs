//! In front of all services: who calls, and whether they may.
//!
//! Where a replica has certificates every call is somebody's, by a certificate or a token, and [`rights`] says what it takes.
//! Without certificates everybody may do everything: settings allow that on loopback alone, or where they are told to.

mod caller;
mod proof;
mod rates;
mod rights;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task;

use http::{HeaderMap, Request, Response};
use metrics::counter;
use muster_core::access::Role;
use muster_proto::status;
use muster_tls::SecuredPeer;
use tokio::time::Instant;
use tonic::transport::server::TcpConnectInfo;
use tonic::{Code, Status};
use tower::{Layer, Service};

use crate::audit_log::Record;
use crate::metrics::names;
use crate::service::context::Context;
pub(crate) use caller::{Caller, caller_of};
use rates::{Allowance, Rates};
use rights::Need;

/// Reason of a refusal for calls that come too fast.
const TOO_MANY_CALLS: &str = "TOO_MANY_CALLS";

/// Puts a [`Gate`] in front of services.
#[derive(Clone)]
pub(crate) struct GateLayer {
    context: Context,
    rates: Arc<Rates>,
}

impl GateLayer {
    pub(crate) fn new(context: Context) -> Self {
        Self {
            context,
            rates: Arc::default(),
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

/// Lets through who may.
#[derive(Clone)]
pub(crate) struct Gate<Inner> {
    layer: GateLayer,
    inner: Inner,
}

type Answering<Answer, Error> = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>;

impl<Inner, Body, AnswerBody> Service<Request<Body>> for Gate<Inner>
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
        let method = request.uri().path();
        let passed = match &peer {
            None => Ok(Caller::Open),
            Some(peer) => self.layer.pass(method, peer, request.headers()),
        };
        match passed {
            Ok(caller) => {
                if let Some(address) = peer.and_then(|peer| peer.address) {
                    request.extensions_mut().insert(connection(address));
                }
                request.extensions_mut().insert(caller);
                Box::pin(self.inner.call(request))
            }
            Err(refusal) => {
                let from = peer.and_then(|peer| peer.address);
                let refused = refuse(self.layer.context.clone(), method.to_owned(), refusal, from);
                Box::pin(async move { Ok(refused.await.into_http()) })
            }
        }
    }
}

/// A refusal, and the name that was proven, if it is to be on record.
struct Refusal {
    caller: Option<String>,
    status: Status,
}

impl GateLayer {
    /// Who calls, if they may call this now.
    fn pass(
        &self,
        method: &str,
        peer: &SecuredPeer,
        headers: &HeaderMap,
    ) -> Result<Caller, Refusal> {
        let need = rights::need(method);
        let handle = &self.context.handle;
        let proven = handle.with_state(|state| {
            let caller = proof::caller(state, peer, headers)?;
            let role = caller.role(state);
            Ok((caller, role))
        });
        let (caller, role) = match proven {
            Ok(proven) => proven,
            // A probe need not be anybody.
            Err(_) if need == Need::Nothing => return Ok(Caller::Nobody),
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
        self.take_turn(&caller)?;
        Ok(caller)
    }

    /// Refuses a user who has made too many calls lately. Workers and replicas make those that they must.
    fn take_turn(&self, caller: &Caller) -> Result<(), Refusal> {
        let Caller::User(name) = caller else {
            return Ok(());
        };
        let limits = self.context.settings.borrow().limits;
        let allowance = Allowance {
            per_second: limits.calls_per_second_per_user,
            at_once: limits.calls_at_once_per_user,
        };
        let taken = self.rates.take(name, Instant::now(), allowance);
        taken.map_err(|wait| {
            let limit = allowance.per_second;
            let message = format!(
                "{caller} makes more than {limit} calls a second (calls_per_second_per_user)"
            );
            let metadata = [
                ("limit_name", "calls_per_second_per_user".to_owned()),
                ("limit", limit.to_string()),
            ];
            Refusal {
                status: status::retryable(
                    Code::ResourceExhausted,
                    TOO_MANY_CALLS,
                    &message,
                    &metadata,
                    wait,
                ),
                caller: None,
            }
        })
    }
}

fn too_weak(caller: &Caller, role: Option<Role>, need: Need) -> Refusal {
    let who = caller.to_string();
    let message = match role {
        Some(role) => format!(
            "{who} has role `{role}`, and this takes {need}; `muster user list` shows who may"
        ),
        None => format!("{who} may not do this: it takes {need}"),
    };
    let metadata = [("needed", need.to_string())];
    Refusal {
        status: status::error(Code::PermissionDenied, "ROLE_TOO_WEAK", &message, &metadata),
        caller: Some(who),
    }
}

/// Counts a refusal. Of those who have proven who they are it is noted in the audit log too; whoever has not could fill that
/// with nothing.
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
            let record = Record::told(name, (&caller, String::new()), from);
            context
                .note(record.answered_with(Some(&refusal.status)))
                .await;
        }
        None => {
            let (from, why) = (from.map(|from| from.to_string()), refusal.status.message());
            tracing::debug!(
                method = name,
                from,
                why,
                "a call without a proof of who calls was refused"
            );
        }
    }
    refusal.status
}

/// As plain connections say it: where the caller is.
fn connection(address: SocketAddr) -> TcpConnectInfo {
    TcpConnectInfo {
        local_addr: None,
        remote_addr: Some(address),
    }
}
