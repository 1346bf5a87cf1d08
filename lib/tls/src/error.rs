//! Errors of TLS files.

use std::io;
use std::path::PathBuf;

/// Error of unusable certificates. Every error names the file and the way out.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file cannot be read.
    #[error("{option}: cannot read {}: {source}", path.display())]
    Read {
        /// The option that names the file.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file has invalid content.
    #[error("{option}: {} {problem}", path.display())]
    Content {
        /// The option that names the file.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// The problem with it.
        problem: String,
    },
    /// Certificate and key, or certificate and authority, do not match.
    #[error("tls.certificate: {} cannot be used with its key and its authority: {problem}", path.display())]
    Unusable {
        /// The certificate.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The certificate identifies another peer.
    #[error(
        "tls.certificate: {} is for {found}, not for {needed}: create one with `muster cert`",
        path.display()
    )]
    WrongRole {
        /// The certificate.
        path: PathBuf,
        /// Role in the certificate.
        found: String,
        /// Required role.
        needed: String,
    },
}
