//! Certificates of a local cluster with TLS.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use muster_client::TlsSettings;
use muster_scheduler::Limits;
use muster_tls::PeerRole;
use muster_tls::issue::{self, CA_CERTIFICATE, CERTIFICATE_DAYS};

use crate::cluster::{CLUSTER_ID, ClusterError, failed};

/// Folder of the certificates within the cluster folder.
const FOLDER: &str = "certificates";

/// Certificate authority of one cluster; empty without TLS.
#[derive(Debug)]
pub(super) struct Certificates {
    folder: Option<PathBuf>,
}

impl Certificates {
    /// Creates the authority of a cluster with TLS.
    pub(super) fn make(secured: bool, cluster: &Path) -> Result<Self, ClusterError> {
        let folder = secured.then(|| cluster.join(FOLDER));
        if let Some(folder) = &folder {
            let made = issue::authority(folder, CLUSTER_ID).map_err(io::Error::other);
            made.map_err(failed("creating a certificate authority"))?;
        }
        Ok(Self { folder })
    }

    /// Issues the certificate of a replica for its address.
    pub(super) fn of_replica(
        &self,
        name: &str,
        address: IpAddr,
    ) -> Result<TlsSettings, ClusterError> {
        self.of(name, &PeerRole::Replica, &[address.to_string()])
    }

    /// Issues the certificate of a worker.
    pub(super) fn of_worker(&self, name: &str) -> Result<TlsSettings, ClusterError> {
        self.of(name, &PeerRole::Worker(name.to_owned()), &[])
    }

    /// TLS settings for the holder of a member's certificate; default settings without TLS.
    pub(super) fn settings(&self, name: &str) -> TlsSettings {
        let file = |name: String| self.folder.as_ref().map(|folder| folder.join(name));
        TlsSettings {
            ca: file(CA_CERTIFICATE.to_owned()),
            certificate: file(format!("{name}.pem")),
            key: file(format!("{name}.key")),
            ca_key: None,
        }
    }

    /// Limits of a replica: with per-user limits, a single user generates the load of many.
    pub(super) fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        if self.folder.is_some() {
            limits.calls_per_second_per_user = 0;
        }
        limits
    }

    fn of(
        &self,
        name: &str,
        role: &PeerRole,
        addresses: &[String],
    ) -> Result<TlsSettings, ClusterError> {
        if let Some(folder) = &self.folder {
            let made = issue::certificate(folder, name, role, addresses, CERTIFICATE_DAYS);
            let made = made.map_err(io::Error::other);
            made.map_err(failed("issuing a certificate"))?;
        }
        Ok(self.settings(name))
    }
}
