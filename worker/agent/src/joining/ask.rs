//! What a worker asks a replica for a certificate.

use std::path::Path;
use std::time::Duration;

use muster_proto::v1;
use muster_proto::v1::join_service_client::JoinServiceClient;
use muster_tls::{AuthoritiesHash, Dialer, JoinToken, Tls, TlsSettings};
use tokio::time::timeout;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// Longest wait for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Longest wait for a replica's answer, which may have to wait for a leader.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// What a worker says to join.
pub(super) struct Join {
    pub(super) request_id: String,
    pub(super) token: JoinToken,
    pub(super) host: String,
    pub(super) csr_pem: String,
}

/// What the cluster gives.
pub(super) struct Joined {
    pub(super) certificate_pem: String,
    pub(super) authorities_pem: String,
}

/// Why there is no certificate.
pub(super) enum Failed {
    /// The replica says why.
    Refused(Status),
    /// It could not say it, or must not be believed.
    Unsaid(String),
}

/// A replica, and how to be sure of it.
pub(super) struct Replica<'a> {
    address: &'a str,
    /// The authorities that the settings name.
    authorities: Option<&'a Path>,
}

impl<'a> Replica<'a> {
    pub(super) const fn new(address: &'a str, authorities: Option<&'a Path>) -> Self {
        Self {
            address,
            authorities,
        }
    }

    /// Joins by this replica.
    pub(super) async fn join(&self, asked: &Join) -> Result<Joined, Failed> {
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
        }));
        let answer = answer.await?;
        Ok(Joined {
            certificate_pem: answer.certificate_pem,
            authorities_pem: answer.authorities_pem,
        })
    }

    /// Has the certificate renewed that the connection is opened with.
    pub(super) async fn renew(&self, tls: Tls, csr_pem: String) -> Result<Joined, Failed> {
        let mut client = self.client(tls).await?;
        let request = v1::RenewCertificateRequest { csr_pem };
        let answer = timed(client.renew_certificate(request)).await?;
        Ok(Joined {
            certificate_pem: answer.certificate_pem,
            authorities_pem: answer.authorities_pem,
        })
    }

    fn trusting_files(&self, path: &Path) -> Result<Tls, Failed> {
        let settings = TlsSettings {
            ca: Some(path.to_owned()),
            ..TlsSettings::default()
        };
        let loaded = Tls::load(&settings).map_err(|error| Failed::Unsaid(error.to_string()))?;
        loaded.ok_or_else(|| Failed::Unsaid("tls.ca is not set".to_owned()))
    }

    /// Asks whoever is there for the authorities, and believes the answer if it is what the token says. Nothing is told meanwhile.
    async fn trusting_the_token(&self, token: &JoinToken) -> Result<Tls, Failed> {
        let mut anybody = self.client(Tls::believing_anybody()).await?;
        let request = v1::GetAuthoritiesRequest {};
        let pem = timed(anybody.get_authorities(request))
            .await?
            .authorities_pem;
        if AuthoritiesHash::of(&pem) != token.authorities() {
            let problem = "its authorities are not those of the join token: it is of another cluster, or `tls.ca` has changed since the \
                           token was made; an admin makes another one by `muster worker token create`";
            return Err(Failed::Unsaid(problem.to_owned()));
        }
        let tls = Tls::trusting(&pem);
        tls.ok_or_else(|| Failed::Unsaid("its authorities cannot be used".to_owned()))
    }

    async fn client(&self, tls: Tls) -> Result<JoinServiceClient<Channel>, Failed> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address));
        let endpoint = endpoint.map_err(|error| Failed::Unsaid(error.to_string()))?;
        let endpoint = endpoint.connect_timeout(CONNECT_MAX);
        let dialer = Dialer::new(Some(tls));
        let opened = timeout(CONNECT_MAX, dialer.connect(&endpoint)).await;
        let opened = opened.map_err(|_| Failed::Unsaid("it does not answer".to_owned()))?;
        let channel = opened.map_err(|error| Failed::Unsaid(innermost(&error)))?;
        Ok(JoinServiceClient::new(channel))
    }
}

async fn timed<Answer>(
    call: impl Future<Output = Result<tonic::Response<Answer>, Status>>,
) -> Result<Answer, Failed> {
    let answer = timeout(ANSWER_MAX, call).await;
    let answer = answer.map_err(|_| Failed::Unsaid("it does not answer".to_owned()))?;
    answer
        .map(tonic::Response::into_inner)
        .map_err(Failed::Refused)
}

/// The first cause: those around it say no more than that something failed.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
