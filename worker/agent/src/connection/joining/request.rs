//! Requests to a replica for a certificate.

use std::path::Path;
use std::time::Duration;

use muster_proto::v1;
use muster_proto::v1::join_service_client::JoinServiceClient;
use muster_tls::{AuthoritiesHash, Dialer, JoinToken, Tls, TlsSettings};
use tokio::time::timeout;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// Timeout for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Timeout for a replica's answer, which may have to wait for a leader.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Request to join.
pub(super) struct JoinRequest {
    pub(super) request_id: String,
    pub(super) token: JoinToken,
    pub(super) host: String,
    pub(super) csr_pem: String,
}

/// Certificate and authorities from the cluster.
pub(super) struct JoinResponse {
    pub(super) certificate_pem: String,
    pub(super) authorities_pem: String,
}

/// Reasons why there is no certificate.
pub(super) enum JoinFailure {
    /// Refused by the replica.
    Refused(Status),
    /// The replica did not answer or could not be authenticated.
    NoAnswer(String),
}

/// A replica, and how to authenticate it.
pub(super) struct Replica<'a> {
    address: &'a str,
    /// File with the authorities from the settings.
    authorities: Option<&'a Path>,
}

impl<'a> Replica<'a> {
    pub(super) const fn new(address: &'a str, authorities: Option<&'a Path>) -> Self {
        Self {
            address,
            authorities,
        }
    }

    /// Joins through this replica.
    pub(super) async fn join(&self, asked: &JoinRequest) -> Result<JoinResponse, JoinFailure> {
        let tls = match self.authorities {
            Some(path) => self.trusting_files(path)?,
            None => self.trusting_the_token(&asked.token).await?,
        };
        let mut client = self.client(tls).await?;
        let answer = timed(client.join(v1::JoinRequest {
            request_id: asked.request_id.clone(),
            token: asked.token.text().to_owned(),
            host: asked.host.clone(),
            csr_pem: asked.csr_pem.clone(),
        }))
        .await?;
        Ok(JoinResponse {
            certificate_pem: answer.certificate_pem,
            authorities_pem: answer.authorities_pem,
        })
    }

    /// Renews the certificate with which the connection is opened.
    pub(super) async fn renew(
        &self,
        tls: Tls,
        csr_pem: String,
    ) -> Result<JoinResponse, JoinFailure> {
        let mut client = self.client(tls).await?;
        let request = v1::RenewCertificateRequest { csr_pem };
        let answer = timed(client.renew_certificate(request)).await?;
        Ok(JoinResponse {
            certificate_pem: answer.certificate_pem,
            authorities_pem: answer.authorities_pem,
        })
    }

    fn trusting_files(&self, path: &Path) -> Result<Tls, JoinFailure> {
        let settings = TlsSettings {
            ca: Some(path.to_owned()),
            ..TlsSettings::default()
        };
        let loaded =
            Tls::load(&settings).map_err(|error| JoinFailure::NoAnswer(error.to_string()))?;
        loaded.ok_or_else(|| JoinFailure::NoAnswer("tls.ca is not set".to_owned()))
    }

    /// Asks an unauthenticated replica for its authorities and accepts them if their hash is the token's.
    /// Nothing secret is sent meanwhile.
    async fn trusting_the_token(&self, token: &JoinToken) -> Result<Tls, JoinFailure> {
        let mut unverified = self.client(Tls::trusting_any_server()).await?;
        let request = v1::GetAuthoritiesRequest {};
        let pem = timed(unverified.get_authorities(request))
            .await?
            .authorities_pem;
        if AuthoritiesHash::of(&pem) != token.authorities() {
            let problem = "its authorities are not those of the join token: it is of another cluster, or `tls.ca` \
                           changed since the token was created; an admin creates a new one with \
                           `muster worker token create`";
            return Err(JoinFailure::NoAnswer(problem.to_owned()));
        }
        let tls = Tls::trusting_authorities(&pem);
        tls.ok_or_else(|| JoinFailure::NoAnswer("invalid authorities".to_owned()))
    }

    async fn client(&self, tls: Tls) -> Result<JoinServiceClient<Channel>, JoinFailure> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address))
            .map_err(|error| JoinFailure::NoAnswer(error.to_string()))?
            .connect_timeout(CONNECT_MAX);
        let dialer = Dialer::new(Some(tls));
        let opened = timeout(CONNECT_MAX, dialer.connect(&endpoint))
            .await
            .map_err(|_| JoinFailure::NoAnswer("no answer".to_owned()))?;
        let channel = opened.map_err(|error| JoinFailure::NoAnswer(innermost(&error)))?;
        Ok(JoinServiceClient::new(channel))
    }
}

async fn timed<Answer>(
    call: impl Future<Output = Result<tonic::Response<Answer>, Status>>,
) -> Result<Answer, JoinFailure> {
    let answer = timeout(ANSWER_MAX, call)
        .await
        .map_err(|_| JoinFailure::NoAnswer("no answer".to_owned()))?;
    answer
        .map(tonic::Response::into_inner)
        .map_err(JoinFailure::Refused)
}

/// The root cause: the outer errors only repeat that something failed.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
