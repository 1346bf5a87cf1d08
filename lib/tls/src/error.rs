//! What is wrong with files of TLS.

use std::io;
use std::path::PathBuf;

/// Why certificates cannot be used. Every error names the file and the way out.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Nobody may read the file, or it is not there.
    #[error("{option}: cannot read {}: {source}", path.display())]
    Read {
        /// The option that names the file.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file holds something else.
    #[error("{option}: {} {problem}", path.display())]
    Content {
        /// The option that names the file.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Certificate and key, or certificate and authority, do not go together.
    #[error("tls.certificate: {} cannot be used with its key and its authority: {problem}", path.display())]
    Unusable {
        /// The certificate.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The certificate is somebody else's.
    #[error("tls.certificate: {} speaks for {found}, needed is one that speaks for {needed}: make one with `muster cert`", path.display())]
    WrongRole {
        /// The certificate.
        path: PathBuf,
        /// Whom it speaks for.
        found: String,
        /// Whom it should speak for.
        needed: String,
    },
}
