//! Signing of worker certificates in a running cluster, and the workers' signing requests.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    CertificateParams, CertificateSigningRequestParams, Issuer, KeyPair, PublicKeyData as _,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use crate::issue::{IssueError, parameters};
use crate::peer_role::PeerRole;
use crate::private_file::create_private;
use crate::settings::TlsSettings;

/// Authority of a cluster, with its key. The files are read for every certificate: they may change, and
/// signing is rare.
#[derive(Clone, Debug)]
pub struct Authority {
    certificates: PathBuf,
    key: PathBuf,
}

impl Authority {
    /// The authority whose key is in the settings; none if they have none.
    ///
    /// # Errors
    /// The problem with its files.
    pub fn open(settings: &TlsSettings) -> Result<Option<Self>, IssueError> {
        let (Some(certificates), Some(key)) = (&settings.ca, &settings.ca_key) else {
            return Ok(None);
        };
        let authority = Self {
            certificates: certificates.clone(),
            key: key.clone(),
        };
        drop(authority.issuer()?);
        Ok(Some(authority))
    }

    /// Signs a certificate for the key of a request. The caller must have verified the requester: nothing
    /// else of the request is used.
    ///
    /// # Errors
    /// [`IssueError::Request`] if the request is not signed by its own key; problems with the authority's
    /// files.
    pub fn sign(
        &self,
        request: &SigningRequest,
        role: &PeerRole,
        life: Duration,
    ) -> Result<String, IssueError> {
        let params = parameters(role, &[], life)?;
        let signed = params.signed_by(&request.0.public_key, &self.issuer()?)?;
        Ok(signed.pem())
    }

    /// The one of the authorities whose key it is.
    fn issuer(&self) -> Result<Issuer<'static, KeyPair>, IssueError> {
        let key = KeyPair::from_pem(&read(&self.key)?)?;
        let pem = read(&self.certificates)?;
        let public = key.subject_public_key_info();
        let certificates = CertificateDer::pem_slice_iter(pem.as_bytes());
        let own = certificates
            .filter_map(Result::ok)
            .find(|certificate| {
                let parsed = X509Certificate::from_der(certificate);
                parsed.is_ok_and(|(_, parsed)| parsed.public_key().raw == public)
            })
            .ok_or_else(|| IssueError::OtherKey {
                certificates: self.certificates.clone(),
                key: self.key.clone(),
            })?;
        Ok(Issuer::from_ca_cert_der(&own, key)?)
    }
}

/// A certificate signing request: a public key, and a proof of possession of the private key.
pub struct SigningRequest(CertificateSigningRequestParams);

impl SigningRequest {
    /// Parses PEM.
    ///
    /// # Errors
    /// [`IssueError::Request`] if the request is not signed by its own key.
    pub fn parse(pem: &str) -> Result<Self, IssueError> {
        let parsed = CertificateSigningRequestParams::from_pem(pem);
        parsed.map(Self).map_err(IssueError::Request)
    }

    /// The public key, as encoded in the certificate.
    #[must_use]
    pub fn public_key(&self) -> Vec<u8> {
        self.0.public_key.subject_public_key_info()
    }
}

/// Creates a signing request in PEM with the private key of a file, which is created if missing, readable
/// by its owner only.
///
/// # Errors
/// The file cannot be written, or has other content.
pub fn signing_request(key: &Path) -> Result<String, IssueError> {
    let pair = match fs::read_to_string(key) {
        Ok(pem) => KeyPair::from_pem(&pem)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let pair = KeyPair::generate()?;
            let written = create_private(key, pair.serialize_pem().as_bytes());
            written.map_err(|source| IssueError::Write {
                path: key.to_owned(),
                source,
            })?;
            pair
        }
        Err(source) => {
            let path = key.to_owned();
            return Err(IssueError::Read { path, source });
        }
    };
    Ok(CertificateParams::default()
        .serialize_request(&pair)?
        .pem()?)
}

fn read(path: &Path) -> Result<String, IssueError> {
    fs::read_to_string(path).map_err(|source| IssueError::Read {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::issue::{CA_CERTIFICATE, CA_KEY, authority};
    use crate::material::Tls;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn settings(folder: &Path) -> TlsSettings {
        TlsSettings {
            ca: Some(folder.join(CA_CERTIFICATE)),
            ca_key: Some(folder.join(CA_KEY)),
            ..TlsSettings::default()
        }
    }

    #[test]
    fn a_worker_gets_a_certificate_for_its_own_key() {
        let folder = tempfile::tempdir().unwrap();
        authority(folder.path(), "test").unwrap();
        let open = Authority::open(&settings(folder.path())).unwrap().unwrap();
        let key = folder.path().join("worker.key");
        let request = signing_request(&key).unwrap();
        assert_eq!(
            fs::metadata(&key).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let role = PeerRole::Worker("gpu-1".to_owned());
        let request = SigningRequest::parse(&request).unwrap();
        let signed = open.sign(&request, &role, HOUR).unwrap();
        let certificate = folder.path().join("worker.pem");
        fs::write(&certificate, signed).unwrap();
        let worker = TlsSettings {
            ca: Some(folder.path().join(CA_CERTIFICATE)),
            certificate: Some(certificate),
            key: Some(key.clone()),
            ca_key: None,
        };
        let tls = Tls::load_as(&worker, Some(role)).unwrap().unwrap();
        assert!(tls.validity().is_some_and(|life| !life.is_over()));
        // Another request reuses the key.
        let kept = fs::read(&key).unwrap();
        let again = SigningRequest::parse(&signing_request(&key).unwrap()).unwrap();
        assert_eq!(fs::read(&key).unwrap(), kept);
        assert_eq!(again.public_key(), request.public_key());
        let pem = signing_request(&folder.path().join("other.key")).unwrap();
        let other = SigningRequest::parse(&pem).unwrap();
        assert_ne!(other.public_key(), request.public_key());
    }

    #[test]
    fn a_request_signed_with_another_key_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let one = signing_request(&folder.path().join("one.key")).unwrap();
        let other = signing_request(&folder.path().join("other.key")).unwrap();
        // The last line before the end marker ends the signature.
        let tail = |pem: &str| pem.lines().rev().nth(1).map(str::to_owned).unwrap();
        let forged = one.replace(&tail(&one), &tail(&other));
        for pem in [forged.as_str(), "", "-----BEGIN CERTIFICATE REQUEST-----"] {
            let parsed = SigningRequest::parse(pem);
            assert!(matches!(parsed, Err(IssueError::Request(_))), "{pem}");
        }
    }

    #[test]
    fn an_authority_is_found_among_several_by_its_key_and_missed_without_it() {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        authority(old.path(), "old").unwrap();
        authority(new.path(), "new").unwrap();
        let pem = |folder: &Path| fs::read_to_string(folder.join(CA_CERTIFICATE)).unwrap();
        let both = format!("{}{}", pem(old.path()), pem(new.path()));
        fs::write(new.path().join(CA_CERTIFICATE), both).unwrap();
        assert!(Authority::open(&settings(new.path())).unwrap().is_some());
        let foreign = TlsSettings {
            ca_key: Some(new.path().join(CA_KEY)),
            ..settings(old.path())
        };
        let refused = Authority::open(&foreign);
        assert!(matches!(refused, Err(IssueError::OtherKey { .. })));
        assert!(Authority::open(&TlsSettings::default()).unwrap().is_none());
    }
}
