//! Content of certificate files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use rustls::RootCertStore;
use rustls::client::ClientConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::TlsError;
use crate::peer_role::{PeerRole, role_of};
use crate::private_file::is_open_to_others;
use crate::settings::TlsSettings;
use crate::validity::Validity;
use crate::watched::{Files, Watched};

/// HTTP/2, the only supported protocol.
const PROTOCOL: &[u8] = b"h2";

const RELOADS: &str = "muster_tls_reloads_total";
const RENEWALS: &str = "muster_tls_renewals_total";
const EXPIRY: &str = "muster_tls_certificate_expires_seconds";

/// Registers the help texts of TLS metrics.
pub fn describe_metrics() {
    describe_counter!(
        RELOADS,
        "Reloads of changed certificate files, by result (ok, failed)"
    );
    describe_counter!(
        RENEWALS,
        "Certificate renewals of this worker, by result (ok, failed)"
    );
    describe_gauge!(
        EXPIRY,
        Unit::Seconds,
        "Expiry of this process's certificate, in seconds of Unix time"
    );
}

/// Counts an attempt to renew this process's certificate.
pub fn count_renewal(is_done: bool) {
    let result = if is_done { "ok" } else { "failed" };
    counter!(RENEWALS, "result" => result).increment(1);
}

/// Publishes the expiry of this process's current certificate.
fn show_expiry(life: Validity) {
    // Seconds of Unix time are exact in a float for a long time.
    let expires_at = u32::try_from(life.expires_at()).unwrap_or(u32::MAX);
    gauge!(EXPIRY).set(f64::from(expires_at));
}

/// Certificates of one process, as last read from its files. Clones share them.
///
/// A connection uses the certificates that were current when it was opened; a change of files does not
/// interrupt it.
#[derive(Clone, Debug)]
pub struct Tls {
    shared: Arc<Watched<CertificateFiles>>,
}

#[derive(Debug)]
struct CertificateFiles {
    settings: TlsSettings,
    /// Required role of this process's certificate.
    needed: Option<PeerRole>,
}

impl Files for CertificateFiles {
    type Content = Material;
    type Error = TlsError;

    fn paths(&self) -> Vec<&Path> {
        let TlsSettings {
            ca,
            certificate,
            key,
            ca_key: _,
        } = &self.settings;
        let files = [ca, certificate, key].into_iter().flatten();
        files.map(PathBuf::as_path).collect()
    }

    fn read(&self) -> Result<Material, TlsError> {
        let material = Material::read(&self.settings, self.needed.as_ref())?;
        // A process may hold further certificates, as a client of others: they are not its identity.
        if self.needed.is_some()
            && let Some(life) = material.life
        {
            show_expiry(life);
        }
        Ok(material)
    }

    fn on_reload(&self, outcome: Result<(), TlsError>) {
        let result = if outcome.is_ok() { "ok" } else { "failed" };
        counter!(RELOADS, "result" => result).increment(1);
        match outcome {
            Ok(()) => tracing::info!("the certificates have changed: new connections use them"),
            Err(error) => {
                tracing::error!(
                    %error,
                    "the certificates have changed and cannot be used: the previous ones stay in use"
                );
            }
        }
    }
}

/// Content of the files at one time.
#[derive(Debug)]
pub(crate) struct Material {
    pub(crate) client: Arc<ClientConfig>,
    /// None: this process has no certificate, and cannot be a server.
    pub(crate) server: Option<Arc<ServerConfig>>,
    /// Role in the certificate.
    role: Option<PeerRole>,
    /// Validity of the certificate.
    life: Option<Validity>,
}

impl Tls {
    /// Reads the files; none if the settings name no file.
    ///
    /// # Errors
    /// The missing or invalid file.
    pub fn load(settings: &TlsSettings) -> Result<Option<Self>, TlsError> {
        Self::load_as(settings, None)
    }

    /// As [`Tls::load`], for a process with a required role: a replica, or the worker of a host.
    ///
    /// # Errors
    /// As [`Tls::load`]; [`TlsError::WrongRole`] for a certificate of another role.
    pub fn load_as(
        settings: &TlsSettings,
        needed: Option<PeerRole>,
    ) -> Result<Option<Self>, TlsError> {
        if !settings.is_on() {
            return Ok(None);
        }
        let settings = settings.clone();
        let shared = Watched::open(CertificateFiles { settings, needed })?;
        Ok(Some(Self {
            shared: Arc::new(shared),
        }))
    }

    /// Role of this process's certificate; none without a certificate or role.
    #[must_use]
    pub fn role(&self) -> Option<PeerRole> {
        self.current().role.clone()
    }

    /// Validity of this process's certificate; none without one.
    #[must_use]
    pub fn validity(&self) -> Option<Validity> {
        self.current().life
    }

    /// Material of a process that only opens connections, and reads no files.
    pub(crate) fn client_alone(client: ClientConfig) -> Self {
        let material = Material {
            client: Arc::new(with_protocol(client)),
            server: None,
            role: None,
            life: None,
        };
        let no_files = CertificateFiles {
            settings: TlsSettings::default(),
            needed: None,
        };
        Self {
            shared: Arc::new(Watched::fixed(no_files, material)),
        }
    }

    pub(crate) fn current(&self) -> Arc<Material> {
        self.shared.current()
    }

    /// Polls the files for changes, in a task that ends with the last clone. Unusable changed files are
    /// logged, and the previous content stays in use.
    pub fn keep_current(&self) {
        self.shared.keep_current();
    }

    /// Reads the files now.
    ///
    /// # Errors
    /// As [`Tls::load_as`]; the previous content stays in use then.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.shared.reload()
    }
}

impl Material {
    fn read(settings: &TlsSettings, needed: Option<&PeerRole>) -> Result<Self, TlsError> {
        let roots = Arc::new(roots(settings)?);
        let Some((path, chain, key)) = identity(settings)? else {
            let client = client_config(&roots).with_no_client_auth();
            return Ok(Self {
                client: Arc::new(with_protocol(client)),
                server: None,
                role: None,
                life: None,
            });
        };
        let role = chain.first().and_then(role_of);
        if let Some(needed) = needed
            && role.as_ref() != Some(needed)
        {
            return Err(TlsError::WrongRole {
                path,
                found: role.map_or_else(|| "no role".to_owned(), |role| role.to_string()),
                needed: needed.to_string(),
            });
        }
        let life = chain.first().and_then(Validity::of);
        let unusable = |problem: String| TlsError::Unusable {
            path: path.clone(),
            problem,
        };
        let server = server_config(&roots, chain.clone(), key.clone_key()).map_err(unusable)?;
        let client = client_config(&roots)
            .with_client_auth_cert(chain, key)
            .map_err(|error| unusable(error.to_string()))?;
        Ok(Self {
            client: Arc::new(with_protocol(client)),
            server: Some(Arc::new(server)),
            role,
            life,
        })
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

pub(crate) fn client_config(
    roots: &Arc<RootCertStore>,
) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("ring speaks TLS 1.3")
        .with_root_certificates(Arc::clone(roots))
}

fn with_protocol(mut client: ClientConfig) -> ClientConfig {
    client.alpn_protocols = vec![PROTOCOL.to_vec()];
    client
}

/// A client may present a certificate; one without is authenticated by its token, or not at all.
fn server_config(
    roots: &Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, String> {
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider())
        .allow_unauthenticated()
        .build()
        .map_err(|error| error.to_string())?;
    let mut server = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| error.to_string())?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|error| error.to_string())?;
    server.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(server)
}

fn roots(settings: &TlsSettings) -> Result<RootCertStore, TlsError> {
    const OPTION: &str = "tls.ca";
    let path = settings.ca.clone().unwrap_or_default();
    let mut roots = RootCertStore::empty();
    for certificate in certificates(OPTION, &path)? {
        roots.add(certificate).map_err(|error| TlsError::Content {
            option: OPTION,
            path: path.clone(),
            problem: format!("contains a certificate that is not an authority's: {error}"),
        })?;
    }
    Ok(roots)
}

type Identity = (
    PathBuf,
    Vec<CertificateDer<'static>>,
    PrivateKeyDer<'static>,
);

fn identity(settings: &TlsSettings) -> Result<Option<Identity>, TlsError> {
    const OPTION: &str = "tls.key";
    let (Some(certificate), Some(key)) = (&settings.certificate, &settings.key) else {
        return Ok(None);
    };
    let chain = certificates("tls.certificate", certificate)?;
    let pem = read(OPTION, key)?;
    warn_if_public(key);
    let parsed = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| TlsError::Content {
        option: OPTION,
        path: key.clone(),
        problem: format!("contains no private key in PEM: {error}"),
    })?;
    Ok(Some((certificate.clone(), chain, parsed)))
}

fn certificates(
    option: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |problem: String| TlsError::Content {
        option,
        path: path.to_owned(),
        problem,
    };
    let pem = read(option, path)?;
    let read = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let certificates = read.map_err(|error| wrong(format!("is not a PEM file: {error}")))?;
    if certificates.is_empty() {
        return Err(wrong("contains no certificate in PEM".to_owned()));
    }
    Ok(certificates)
}

fn read(option: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |source: io::Error| TlsError::Read {
        option,
        path: path.to_owned(),
        source,
    };
    fs::read(path).map_err(failed)
}

/// Where secrets are mounted, a group may read them; other users never should.
fn warn_if_public(key: &Path) {
    if is_open_to_others(key) {
        tracing::warn!(
            key = %key.display(),
            "the private key is readable by all users of this machine: `chmod 600` it"
        );
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;
    use crate::issue::{CA_CERTIFICATE, authority, certificate};

    /// Files of a replica's certificate that is valid for `days` days.
    fn replica(folder: &Path, name: &str, days: u64) -> TlsSettings {
        let issued = certificate(folder, name, &PeerRole::Replica, &[], days).unwrap();
        TlsSettings {
            ca: Some(folder.join(CA_CERTIFICATE)),
            certificate: Some(issued.certificate),
            key: Some(issued.key),
            ca_key: None,
        }
    }

    #[test]
    fn the_expiry_metric_shows_the_certificate_in_use_of_the_processs_own_role() {
        let folder = tempfile::tempdir().unwrap();
        authority(folder.path(), "test").unwrap();
        let own = replica(folder.path(), "own", 10);
        let longer = replica(folder.path(), "longer", 100);
        let replace = |file: fn(&TlsSettings) -> Option<PathBuf>| {
            fs::copy(file(&longer).unwrap(), file(&own).unwrap()).unwrap();
        };
        let recorder = PrometheusBuilder::new().build_recorder();
        let page = recorder.handle();
        let shown = |tls: &Tls| {
            let line = format!("{EXPIRY} {}", tls.validity().unwrap().expires_at());
            page.render().lines().any(|it| it == line)
        };
        metrics::with_local_recorder(&recorder, || {
            let tls = Tls::load_as(&own, Some(PeerRole::Replica))
                .unwrap()
                .unwrap();
            assert!(shown(&tls));
            let of_client = Tls::load(&longer).unwrap().unwrap();
            assert!(shown(&tls) && !shown(&of_client), "{}", page.render());
            replace(|settings| settings.certificate.clone());
            assert!(tls.reload().is_err(), "its key does not match");
            assert!(shown(&tls) && !shown(&of_client), "{}", page.render());
            replace(|settings| settings.key.clone());
            tls.reload().unwrap();
            assert!(shown(&tls) && shown(&of_client), "{}", page.render());
        });
    }
}
