//! In front of all services: who calls, and whether they may.
//!
//! Where a replica has certificates every call is somebody's, by a certificate or a token, and [`rights`] says what it takes.
//! Without certificates everybody may do everything: settings allow that on loopback alone, or where they are told to.

mod caller;
mod proof;
mod rights;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task;

use http::{HeaderMap, Request, Response};
use metrics::counter;
use muster_proto::status;
use muster_tls::SecuredPeer;
use tonic::Status;
use tonic::transport::server::TcpConnectInfo;
use tower::{Layer, Service};

use crate::audit_log::Record;
use crate::metrics::names;
use crate::service::context::Context;
pub(crate) use caller::{Caller, caller_of};
use rights::Need;

/// Puts a [`Gate`] in front of services.
#[derive(Clone)]
pub(crate) struct GateLayer(Context);

impl GateLayer {
    pub(crate) const fn new(context: Context) -> Self {
        Self(context)
    }
}

impl<Inner> Layer<Inner> for GateLayer {
    type Service = Gate<Inner>;

    fn layer(&self, inner: Inner) -> Gate<Inner> {
        Gate {
            context: self.0.clone(),
            inner,
        }
    }
}

/// Lets through who may.
#[derive(Clone)]
pub(crate) struct Gate<Inner> {
    context: Context,
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
            Some(peer) => pass(&self.context, method, peer, request.headers()),
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
                let refused = refuse(self.context.clone(), method.to_owned(), refusal, from);
                Box::pin(async move { Ok(refused.await.into_http()) })
            }
        }
    }
}

/// A refusal, and the name that was proven.
struct Refusal {
    caller: Option<String>,
    status: Status,
}

/// Who calls, if they may call this.
fn pass(
    context: &Context,
    method: &str,
    peer: &SecuredPeer,
    headers: &HeaderMap,
) -> Result<Caller, Refusal> {
    let need = rights::need(method);
    let proven = context
        .handle
        .with_state(|state| proof::caller(state, peer, headers));
    let caller = match proven {
        Ok(caller) => caller,
        // A probe need not be anybody.
        Err(_) if need == Need::Nothing => Caller::Nobody,
        Err(status) => {
            return Err(Refusal {
                caller: None,
                status,
            });
        }
    };
    let role = context.handle.with_state(|state| caller.role(state));
    if need.is_met_by(&caller, role) {
        return Ok(caller);
    }
    let who = caller.to_string();
    let message = match role {
        Some(role) => format!(
            "{who} has role `{role}`, and this takes {need}; `muster user list` shows who may"
        ),
        None => format!("{who} may not do this: it takes {need}"),
    };
    Err(Refusal {
        status: status::error(
            tonic::Code::PermissionDenied,
            "ROLE_TOO_WEAK",
            &message,
            &[("needed", need.to_string())],
        ),
        caller: Some(who),
    })
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
