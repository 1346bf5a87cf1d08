//! Certificates of a local cluster, where it has some.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use muster_client::TlsSettings;
use muster_scheduler::Limits;
use muster_tls::PeerRole;
use muster_tls::issue::{self, CA_CERTIFICATE, CERTIFICATE_DAYS};

use crate::cluster::{CLUSTER_ID, ClusterError, failed};

/// Folder of the certificates within a cluster's.
const FOLDER: &str = "certificates";

/// The authority of one cluster, or that it has none.
#[derive(Debug)]
pub(super) struct Certificates {
    folder: Option<PathBuf>,
}

impl Certificates {
    /// Makes the authority of a cluster that has certificates.
    pub(super) fn make(secured: bool, cluster: &Path) -> Result<Self, ClusterError> {
        let folder = secured.then(|| cluster.join(FOLDER));
        if let Some(folder) = &folder {
            let made = issue::authority(folder, CLUSTER_ID).map_err(io::Error::other);
            made.map_err(failed("making an authority"))?;
        }
        Ok(Self { folder })
    }

    /// Makes the certificate of a replica that others reach at an address.
    pub(super) fn of_replica(
        &self,
        name: &str,
        address: IpAddr,
    ) -> Result<TlsSettings, ClusterError> {
        self.of(name, &PeerRole::Replica, &[address.to_string()])
    }

    /// Makes the certificate of a worker.
    pub(super) fn of_worker(&self, name: &str) -> Result<TlsSettings, ClusterError> {
        self.of(name, &PeerRole::Worker(name.to_owned()), &[])
    }

    /// What the holder of a member's certificate shows; nothing where there are none.
    pub(super) fn settings(&self, name: &str) -> TlsSettings {
        let file = |name: String| self.folder.as_ref().map(|folder| folder.join(name));
        TlsSettings {
            ca: file(CA_CERTIFICATE.to_owned()),
            certificate: file(format!("{name}.pem")),
            key: file(format!("{name}.key")),
            ca_key: None,
        }
    }

    /// Bounds of a replica: where users are counted, one of them makes the load of many.
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
            made.map_err(failed("making a certificate"))?;
        }
        Ok(self.settings(name))
    }
}
