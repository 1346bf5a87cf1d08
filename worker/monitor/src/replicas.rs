//! Replicas known to a worker: those of its settings, and those that the cluster has reported since, which
//! are kept across agent restarts. All configured ones may be replaced some day, and a later agent must
//! still find the others.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_supervisor::files;
use muster_tls::Dialer;

/// Number of addresses kept in addition to the configured ones.
const LEARNED_MAX: usize = 16;

/// Addresses of replicas (`host:port`), shared by all clients of them.
#[derive(Clone, Debug)]
pub struct KnownReplicas {
    known: Arc<Mutex<Known>>,
}

/// How this worker reaches the scheduler.
#[derive(Clone, Debug)]
pub struct ReplicaAccess {
    /// Addresses of the replicas.
    pub replicas: KnownReplicas,
    /// Opens connections to them, with this worker's certificate if it has one.
    pub dialer: Dialer,
}

#[derive(Debug)]
struct Known {
    configured: Vec<String>,
    learned: Vec<String>,
    /// File of the learned addresses; none if they are not stored.
    file: Option<PathBuf>,
}

impl KnownReplicas {
    /// The configured addresses, and those that an earlier agent stored in `file`. An unreadable file is
    /// ignored: the replicas report each other again.
    #[must_use]
    pub fn open(configured: Vec<String>, file: PathBuf) -> Self {
        let kept = files::read_json::<Vec<String>>(&file);
        let learned = kept.unwrap_or_else(|error| {
            tracing::warn!(file = %file.display(), %error,
                "reading the known replicas failed: only configured ones are used");
            None
        });
        let replicas = Self::of(configured, Some(file));
        replicas.lock().learn(&learned.unwrap_or_default());
        replicas
    }

    /// Only configured addresses, without a file.
    #[cfg(test)]
    pub(crate) fn configured(addresses: Vec<String>) -> Self {
        Self::of(addresses, None)
    }

    fn of(configured: Vec<String>, file: Option<PathBuf>) -> Self {
        let known = Known {
            configured,
            learned: Vec::new(),
            file,
        };
        Self {
            known: Arc::new(Mutex::new(known)),
        }
    }

    /// All addresses, configured ones first.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let known = self.lock();
        known
            .configured
            .iter()
            .chain(&known.learned)
            .cloned()
            .collect()
    }

    /// Replaces the learned addresses. Ignored if empty: an older leader sends none.
    pub fn set_learned(&self, replicas: &[String]) {
        let mut known = self.lock();
        if !replicas.is_empty() && known.learn(replicas) {
            known.keep();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Replaces the learned addresses; returns whether they changed.
    fn learn(&mut self, replicas: &[String]) -> bool {
        let is_new = |address: &&String| !self.configured.contains(address);
        let new: Vec<String> = replicas
            .iter()
            .filter(is_new)
            .take(LEARNED_MAX)
            .cloned()
            .collect();
        let changed = new != self.learned;
        self.learned = new;
        changed
    }

    fn keep(&self) {
        let Some(file) = &self.file else {
            return;
        };
        let kept = files::json_bytes(&self.learned).and_then(|bytes| files::replace(file, &bytes));
        if let Err(error) = kept {
            tracing::warn!(
                file = %file.display(), %error,
                "storing the known replicas failed: a later agent may not find them"
            );
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    fn addresses_of(list: &[&str]) -> Vec<String> {
        list.iter().map(|address| (*address).to_owned()).collect()
    }

    #[test]
    fn all_replicas_are_known_though_all_that_were_configured_are_replaced() {
        let replicas = KnownReplicas::configured(addresses_of(&["a:1", "b:1"]));
        replicas.set_learned(&addresses_of(&["b:1", "c:1", "d:1"]));
        assert_eq!(
            replicas.addresses(),
            addresses_of(&["a:1", "b:1", "c:1", "d:1"])
        );
        replicas.set_learned(&addresses_of(&["d:1", "e:1"]));
        assert_eq!(
            replicas.addresses(),
            addresses_of(&["a:1", "b:1", "d:1", "e:1"])
        );
        // An older leader sends none.
        replicas.set_learned(&[]);
        assert_eq!(
            replicas.addresses(),
            addresses_of(&["a:1", "b:1", "d:1", "e:1"])
        );
    }

    #[test]
    fn learned_replicas_survive_a_restart_of_the_agent() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("replicas.json");
        let first = KnownReplicas::open(addresses_of(&["a:1"]), file.clone());
        first.set_learned(&addresses_of(&["c:1", "d:1"]));
        let next = KnownReplicas::open(addresses_of(&["b:1", "d:1"]), file.clone());
        assert_eq!(next.addresses(), addresses_of(&["b:1", "d:1", "c:1"]));
        std::fs::write(&file, "nonsense").unwrap();
        let after = KnownReplicas::open(addresses_of(&["a:1"]), file);
        assert_eq!(after.addresses(), addresses_of(&["a:1"]));
    }
}
