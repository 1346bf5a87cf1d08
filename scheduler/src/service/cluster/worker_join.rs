//! `JoinService`: certificates for workers, issued by a replica that has the authority's key.

use std::net::SocketAddr;
use std::time::Duration;

use metrics::counter;
use muster_engine::state::State;
use muster_model::access::TokenHash;
use muster_model::ids::RequestId;
use muster_proto::v1::join_service_server::JoinService;
use muster_proto::{status, v1};
use muster_tls::issue::IssueError;
use muster_tls::{Authority, JoinToken, PeerRole, SigningRequest};
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status};

use crate::audit_log::Record;
use crate::metrics::names;
use crate::service::context::Context;
use crate::service::gate::{Caller, caller_of};
use crate::service::read;
use crate::service::write::{CallerContext, write};

/// Reason of a refusal of an invalid join token.
const BAD_JOIN_TOKEN: &str = "BAD_JOIN_TOKEN";
const HOUR: Duration = Duration::from_secs(3_600);

/// `JoinService` of one replica.
pub(crate) struct Joining(pub(crate) Context);

#[tonic::async_trait]
impl JoinService for Joining {
    async fn get_authorities(
        &self,
        _request: Request<v1::GetAuthoritiesRequest>,
    ) -> Result<Response<v1::GetAuthoritiesResponse>, Status> {
        let _permit = self.0.admit()?;
        let authorities_pem = self.authorities().await?;
        Ok(Response::new(v1::GetAuthoritiesResponse {
            authorities_pem,
        }))
    }

    async fn join(
        &self,
        request: Request<v1::JoinRequest>,
    ) -> Result<Response<v1::JoinResponse>, Status> {
        let _permit = self.0.admit()?;
        let calling = CallerContext {
            caller: Caller::Unauthenticated,
            ..CallerContext::of(&self.0, &request)
        };
        let request = request.into_inner();
        let authorities_pem = self.authorities().await?;
        let authority = self.authority()?;
        let csr = SigningRequest::parse(&request.csr_pem).map_err(|error| bad_csr(&error))?;
        let (id, token) = self.prove(&request.token, calling.deadline).await?;
        let host = request.host;
        // From here on the audit log contains the call, even if it is refused.
        let redemption = v1::UseJoinTokenRequest {
            request_id: request_id(&token, &csr.public_key(), &host),
            id,
            token_hash: token.0.to_vec().into(),
            host: host.clone(),
        };
        write(&self.0, redemption, calling).await?;
        let certificate_pem = self.sign(&authority, &csr, &host)?;
        tracing::info!(host, "worker joined, certificate issued");
        Ok(Response::new(v1::JoinResponse {
            certificate_pem,
            authorities_pem,
        }))
    }

    async fn renew_certificate(
        &self,
        request: Request<v1::RenewCertificateRequest>,
    ) -> Result<Response<v1::RenewCertificateResponse>, Status> {
        let _permit = self.0.admit()?;
        let (from, caller) = (request.remote_addr(), caller_of(&request));
        let Caller::Worker(host) = caller else {
            return Err(status::error(
                Code::PermissionDenied,
                "NOT_A_WORKER",
                "only a worker's certificate can be renewed, and the caller's is none",
                &[],
            ));
        };
        let authorities_pem = self.authorities().await?;
        let csr_pem = request.into_inner().csr_pem;
        let signed = self.authority().and_then(|authority| {
            let csr = SigningRequest::parse(&csr_pem).map_err(|error| bad_csr(&error))?;
            self.sign(&authority, &csr, &host)
        });
        self.note_renewal(&host, from, signed.as_ref().err()).await;
        Ok(Response::new(v1::RenewCertificateResponse {
            certificate_pem: signed?,
            authorities_pem,
        }))
    }
}

impl Joining {
    /// The authorities of this cluster, in PEM.
    async fn authorities(&self) -> Result<String, Status> {
        let Some(path) = &self.0.config.tls.ca else {
            return Err(status::error(
                Code::FailedPrecondition,
                "NO_TLS",
                "this cluster does not use certificates: its workers need none",
                &[],
            ));
        };
        let read = tokio::fs::read_to_string(path).await;
        read.map_err(|error| {
            tracing::error!(path = %path.display(), %error, "cannot read `tls.ca`");
            Status::unavailable("this replica cannot read its authorities")
        })
    }

    fn authority(&self) -> Result<Authority, Status> {
        let opened = Authority::open(&self.0.config.tls).map_err(|error| signing_failed(&error))?;
        opened.ok_or_else(|| {
            status::error(
                Code::FailedPrecondition,
                "NO_AUTHORITY_KEY",
                "this replica cannot sign certificates: configure the authority's key (`tls.ca_key`), or \
                 create the worker's certificate with `muster cert worker`",
                &[],
            )
        })
    }

    fn sign(
        &self,
        authority: &Authority,
        csr: &SigningRequest,
        host: &str,
    ) -> Result<String, Status> {
        let life = HOUR * self.0.settings.borrow().worker_certificate_hours;
        let role = PeerRole::Worker(host.to_owned());
        let signed = authority.sign(csr, &role, life);
        signed.map_err(|error| signing_failed(&error))
    }

    /// Name and hash of a known token: unauthenticated callers write nothing to the log, not even refusals.
    async fn prove(&self, token: &str, deadline: Instant) -> Result<(String, TokenHash), Status> {
        let token = JoinToken::new(token);
        let id = token.id().unwrap_or_default().to_owned();
        let hash = TokenHash(token.hash());
        let is_known = |state: &State| {
            let kept = state.join_tokens.get(id.as_str());
            kept.is_some_and(|kept| kept.grant.hash.matches(&hash))
        };
        // A token created a moment ago may not be known here yet.
        let proven = self.0.handle.with_state(is_known)
            || (token.id().is_some() && {
                let newest = v1::Consistency::Linearizable.into();
                is_known(&read::state(&self.0, newest, deadline).await?)
            });
        if !proven {
            counter!(names::REFUSED_TOTAL, "reason" => BAD_JOIN_TOKEN).increment(1);
            return Err(status::error(
                Code::Unauthenticated,
                BAD_JOIN_TOKEN,
                "invalid or expired join token; ask an admin for a new one (`muster worker token create`)",
                &[],
            ));
        }
        Ok((id, hash))
    }

    async fn note_renewal(&self, host: &str, from: Option<SocketAddr>, refusal: Option<&Status>) {
        let who = Caller::Worker(host.to_owned()).on_record(String::new());
        let record = Record::of_call("RenewCertificate", &who, format!("host {host}"), from);
        self.0.record_audit(record.answered_with(refusal)).await;
    }
}

/// Idempotency key that makes a repeated join one use of the token: the same token, key and name identify the
/// same worker. Data chosen by the worker does not count; otherwise one use could cover two hosts.
fn request_id(token: &TokenHash, key: &[u8], host: &str) -> String {
    let mut all = Vec::new();
    for part in [&token.0[..], key, host.as_bytes()] {
        // Length prefix: otherwise the end of one part could be the start of the next.
        all.extend_from_slice(&(part.len() as u64).to_be_bytes());
        all.extend_from_slice(part);
    }
    let mut id = [0; 16];
    id.copy_from_slice(&muster_tls::digest(&all)[..16]);
    RequestId(u128::from_be_bytes(id)).to_string()
}

fn bad_csr(error: &IssueError) -> Status {
    status::error(Code::InvalidArgument, "BAD_CSR", &error.to_string(), &[])
}

/// Logs a defect of this replica's own files; to the caller it is unavailable, so that it tries another
/// replica.
fn signing_failed(error: &IssueError) -> Status {
    tracing::error!(%error, "this replica cannot sign certificates");
    Status::unavailable("this replica cannot sign certificates; see its log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_join_is_one_use_and_one_with_another_key_or_name_is_not() {
        let token = TokenHash([7; 32]);
        let first = request_id(&token, b"key", "gpu-1");
        assert_eq!(request_id(&token, b"key", "gpu-1"), first);
        assert!(first.parse::<RequestId>().is_ok(), "{first}");
        for other in [
            request_id(&TokenHash([8; 32]), b"key", "gpu-1"),
            request_id(&token, b"yek", "gpu-1"),
            request_id(&token, b"key", "gpu-2"),
            request_id(&token, b"keyg", "pu-1"),
        ] {
            assert_ne!(other, first);
        }
    }
}
