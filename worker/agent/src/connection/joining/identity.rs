//! Key and certificate of a joined worker in its data directory.

use std::fs;
use std::path::{Path, PathBuf};

use muster_supervisor::files;
use muster_tls::{PeerRole, Tls, TlsSettings, signing_request};

use crate::config::WorkerConfig;
use crate::connection::joining::JoinError;
use crate::connection::joining::request::JoinResponse;

/// Folder in the data directory.
const FOLDER: &str = "tls";
const CERTIFICATE: &str = "worker.pem";
const KEY: &str = "worker.key";
const AUTHORITIES: &str = "ca.pem";

/// Key, certificate and authorities of a worker that obtained its own certificate.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// Paths of the files.
    pub(super) settings: TlsSettings,
    /// Authorities from the worker's settings; without them it stores those of the cluster.
    pub(super) authorities: Option<PathBuf>,
    folder: PathBuf,
}

impl Identity {
    pub(super) fn of(config: &WorkerConfig, data: &Path) -> Self {
        let folder = data.join(FOLDER);
        let authorities = config.tls.ca.clone();
        let kept = || folder.join(AUTHORITIES);
        Self {
            settings: TlsSettings {
                ca: Some(authorities.clone().unwrap_or_else(kept)),
                certificate: Some(folder.join(CERTIFICATE)),
                key: Some(folder.join(KEY)),
                ca_key: None,
            },
            authorities,
            folder,
        }
    }

    /// Whether this worker has a valid certificate. Logs the problem with an invalid one.
    pub(super) fn is_valid(&self, role: &PeerRole) -> bool {
        if !self.folder.join(CERTIFICATE).exists() {
            return false;
        }
        match Tls::load_as(&self.settings, Some(role.clone())) {
            Ok(tls) => {
                let holds = tls
                    .and_then(|tls| tls.validity())
                    .is_some_and(|life| !life.is_over());
                if !holds {
                    tracing::warn!("the certificate of this worker has expired; joining again");
                }
                holds
            }
            Err(error) => {
                tracing::warn!(%error, "the certificate of this worker is invalid; joining again");
                false
            }
        }
    }

    /// A certificate request with the worker's key, which is created if missing.
    pub(super) fn signing_request(&self) -> Result<String, JoinError> {
        let written = fs::create_dir_all(&self.folder);
        written.map_err(|source| JoinError::Write {
            path: self.folder.clone(),
            source,
        })?;
        Ok(signing_request(&self.folder.join(KEY))?)
    }

    /// Hash that identifies the key.
    pub(super) fn key_mark(&self) -> Result<[u8; 32], JoinError> {
        let path = self.folder.join(KEY);
        let pem = fs::read(&path).map_err(|source| JoinError::Write { path, source })?;
        Ok(muster_tls::digest(&pem))
    }

    /// Stores the cluster's files: the certificate last and atomically, so that an incomplete set is never
    /// used.
    pub(super) fn keep(&self, joined: &JoinResponse) -> Result<(), JoinError> {
        if self.authorities.is_none() {
            self.write(AUTHORITIES, &joined.authorities_pem)?;
        }
        self.write(CERTIFICATE, &joined.certificate_pem)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), JoinError> {
        let path = self.folder.join(name);
        let written = files::replace_durably(&path, text.as_bytes());
        written.map_err(|source| JoinError::Write { path, source })
    }
}
