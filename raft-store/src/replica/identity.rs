//! Identity of a data directory, and the lock that keeps a second process out.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

use bytes::Bytes;
use muster_proto::raft::v1 as proto;
use tokio::sync::oneshot;

use crate::error::OpenError;
use crate::replica::config::Config;
use crate::storage::codec::frame;
use crate::storage::disk::{LogChange, LogDisk, MetaKey};

/// Version of the directory layout.
pub(crate) const DIRECTORY_VERSION: u32 = 1;

/// Lock file of a data directory, held by any process that uses the directory.
pub(crate) const LOCK_FILE: &str = "lock";

/// Lock on a data directory, held by this process.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    // The lock is released with the file handle.
    _file: File,
}

impl DirectoryLock {
    /// Creates the directory if it is missing and locks it.
    pub(crate) fn take(directory: &Path) -> Result<Self, OpenError> {
        let disk = |source| OpenError::Disk {
            operation: format!("locking data directory {}", directory.display()),
            source,
        };
        std::fs::create_dir_all(directory).map_err(disk)?;
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(directory.join(LOCK_FILE))
            .map_err(disk)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse {
                directory: directory.to_owned(),
            }),
            Err(TryLockError::Error(source)) => Err(disk(source)),
        }
    }
}

/// Checks that the data belongs to this replica, or marks new data as its own; returns the incarnation.
/// `fresh` is the incarnation of new data.
pub(crate) async fn claim(
    disk: &dyn LogDisk,
    config: &Config,
    fresh: u64,
) -> Result<u64, OpenError> {
    match stored(disk)? {
        Some(identity) => check(&identity, config),
        None => create(disk, config, fresh).await,
    }
}

/// Stored identity of the data; none for new data.
pub(crate) fn stored(disk: &dyn LogDisk) -> Result<Option<proto::Identity>, OpenError> {
    let stored = disk
        .read_meta(MetaKey::Identity)
        .map_err(|source| disk_error("reading the identity", source))?;
    stored.map(|bytes| read(Bytes::from(bytes))).transpose()
}

fn read(bytes: Bytes) -> Result<proto::Identity, OpenError> {
    let what = || "the identity record".to_owned();
    let identity: proto::Identity =
        frame::decode(bytes).map_err(|error| OpenError::from_decode(what(), error))?;
    if identity.directory_version > DIRECTORY_VERSION {
        return Err(OpenError::NewerFormat {
            what: "the data directory".to_owned(),
            found: identity.directory_version,
            supported: DIRECTORY_VERSION,
        });
    }
    Ok(identity)
}

fn check(identity: &proto::Identity, config: &Config) -> Result<u64, OpenError> {
    if identity.cluster_id != config.cluster_id {
        return Err(OpenError::ForeignCluster {
            found: identity.cluster_id.clone(),
            expected: config.cluster_id.clone(),
        });
    }
    if identity.replica_id != config.replica_id {
        return Err(OpenError::WrongReplica {
            found: identity.replica_id,
            expected: config.replica_id,
        });
    }
    Ok(identity.incarnation)
}

async fn create(disk: &dyn LogDisk, config: &Config, incarnation: u64) -> Result<u64, OpenError> {
    let identity = proto::Identity {
        cluster_id: config.cluster_id.clone(),
        replica_id: config.replica_id,
        incarnation,
        directory_version: DIRECTORY_VERSION,
    };
    let failed = |source| disk_error("writing the identity", source);
    disk.write(vec![LogChange::PutMeta {
        key: MetaKey::Identity,
        record: frame::encode(&identity),
    }])
    .map_err(failed)?;
    let (sender, synced) = oneshot::channel();
    disk.sync(Box::new(move |result| drop(sender.send(result))));
    synced
        .await
        .unwrap_or_else(|_| Err(io::Error::other("the log disk is closed")))
        .map_err(failed)?;
    Ok(incarnation)
}

fn disk_error(operation: &str, source: io::Error) -> OpenError {
    OpenError::Disk {
        operation: operation.to_owned(),
        source,
    }
}
