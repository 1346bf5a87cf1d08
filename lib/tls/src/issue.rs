//! A self-made authority and its certificates: enough for a start. Certificates of an existing authority
//! work as well, if they have the names described in [`PeerRole`].

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

use crate::peer_role::{PeerRole, is_name};
use crate::private_file::create_private;

/// Files of the authority's certificate and signing key: the key's owner can impersonate anyone.
pub const CA_CERTIFICATE: &str = "ca.pem";
/// See [`CA_CERTIFICATE`].
pub const CA_KEY: &str = "ca.key";
/// Validity of a certificate and of the authority's.
pub const CERTIFICATE_DAYS: u64 = 365;
/// See [`CERTIFICATE_DAYS`].
pub const CA_DAYS: u64 = 3_650;
/// Longest validity: a hundred years. Dates beyond the year 9999 cannot be encoded.
pub const DAYS_MAX: u64 = 36_500;
/// Allowed clock skew: certificates are backdated by this much.
const CLOCKS_DIFFER: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// Error of files that were not created.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The file exists already.
    #[error("{} already exists and is not overwritten: remove it, or choose another folder or name", .0.display())]
    Exists(PathBuf),
    /// The authority does not exist.
    #[error("cannot read {}: {source}; `muster cert ca` makes an authority", path.display())]
    NoAuthority {
        /// Its file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A name is invalid in a certificate.
    #[error("`{0}` cannot be used in a certificate: names consist of letters, digits and `-._@`")]
    Name(String),
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A key belongs to none of these authorities.
    #[error("tls.ca_key: {} does not match any authority in {}", key.display(), certificates.display())]
    OtherKey {
        /// File of the authorities.
        certificates: PathBuf,
        /// File of the key.
        key: PathBuf,
    },
    /// The received certificate signing request is invalid.
    #[error("invalid certificate signing request: {0}")]
    Request(#[source] rcgen::Error),
    /// A file is damaged, or the library failed.
    #[error("cannot make the certificate: {0}")]
    Certificate(#[from] rcgen::Error),
}

/// The created files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// File of the certificate.
    pub certificate: PathBuf,
    /// File of its key, which only its owner may read.
    pub key: PathBuf,
}

/// Creates an authority for one cluster in a folder.
///
/// # Errors
/// [`IssueError::Exists`] if there is one.
pub fn authority(folder: &Path, cluster_id: &str) -> Result<Issued, IssueError> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(
        DnType::CommonName,
        format!("Muster authority of {cluster_id}"),
    );
    set_validity(&mut params, of_days(CA_DAYS));
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    write(folder, "ca", &certificate.pem(), &key)
}

/// Creates a certificate by the authority of the same folder; `names` are the host names and addresses of a
/// replica. Files are named after the role.
///
/// # Errors
/// [`IssueError::NoAuthority`] without an authority, [`IssueError::Exists`] if the files exist.
pub fn certificate(
    folder: &Path,
    file_name: &str,
    role: &PeerRole,
    names: &[String],
    days: u64,
) -> Result<Issued, IssueError> {
    let issuer = issuer(folder)?;
    let mut params = parameters(role, names, of_days(days))?;
    params
        .distinguished_name
        .push(DnType::CommonName, file_name);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    write(folder, file_name, &certificate.pem(), &key)
}

/// Content of a certificate for a role.
pub(crate) fn parameters(
    role: &PeerRole,
    names: &[String],
    life: Duration,
) -> Result<CertificateParams, IssueError> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if *role == PeerRole::Replica {
        params
            .extended_key_usages
            .push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    params
        .subject_alt_names
        .push(SanType::URI(checked_uri(role)?));
    for name in names {
        params.subject_alt_names.push(alternative_name(name)?);
    }
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, life);
    Ok(params)
}

fn checked_uri(role: &PeerRole) -> Result<rcgen::string::Ia5String, IssueError> {
    match role {
        PeerRole::Worker(name) | PeerRole::User(name) if !is_name(name) => {
            Err(IssueError::Name(name.clone()))
        }
        _ => Ok(role.uri().as_str().try_into()?),
    }
}

fn alternative_name(name: &str) -> Result<SanType, IssueError> {
    match name.parse::<IpAddr>() {
        Ok(address) => Ok(SanType::IpAddress(address)),
        Err(_) if is_name(name) => Ok(SanType::DnsName(name.try_into()?)),
        Err(_) => Err(IssueError::Name(name.to_owned())),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the clock is read when certificates are made"
)]
fn set_validity(params: &mut CertificateParams, life: Duration) {
    let now = SystemTime::now();
    params.not_before = (now - CLOCKS_DIFFER).into();
    params.not_after = (now + life.min(of_days(DAYS_MAX))).into();
}

fn of_days(days: u64) -> Duration {
    DAY.saturating_mul(u32::try_from(days).unwrap_or(u32::MAX))
}

fn issuer(folder: &Path) -> Result<Issuer<'static, KeyPair>, IssueError> {
    let read = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).map_err(|source| IssueError::NoAuthority { path, source })
    };
    let key = KeyPair::from_pem(&read(CA_KEY)?)?;
    Ok(Issuer::from_ca_cert_pem(&read(CA_CERTIFICATE)?, key)?)
}

/// Writes both files or none: the key first, because a certificate without its key is useless.
fn write(folder: &Path, name: &str, pem: &str, key: &KeyPair) -> Result<Issued, IssueError> {
    let failed = |path: &Path, source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => IssueError::Exists(path.to_owned()),
        _ => IssueError::Write {
            path: path.to_owned(),
            source,
        },
    };
    fs::create_dir_all(folder).map_err(|source| failed(folder, source))?;
    let issued = Issued {
        certificate: folder.join(format!("{name}.pem")),
        key: folder.join(format!("{name}.key")),
    };
    if issued.certificate.exists() {
        return Err(IssueError::Exists(issued.certificate));
    }
    create_private(&issued.key, key.serialize_pem().as_bytes())
        .map_err(|source| failed(&issued.key, source))?;
    fs::write(&issued.certificate, pem).map_err(|source| {
        // Otherwise a retry would find the key and fail.
        drop(fs::remove_file(&issued.key));
        failed(&issued.certificate, source)
    })?;
    Ok(issued)
}
