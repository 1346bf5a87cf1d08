//! The replicas that a worker knows: those of its settings, and those that the cluster has named since, which outlive the agent.
//! All that the settings name may be replaced one day, and an agent that starts after that must find the others.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_supervisor::files;

/// Addresses that are remembered beside the configured ones.
const LEARNED_MAX: usize = 16;

/// Addresses of replicas (`host:port`), shared by all that speak with them.
#[derive(Clone, Debug)]
pub(crate) struct KnownReplicas {
    known: Arc<Mutex<Known>>,
}

#[derive(Debug)]
struct Known {
    configured: Vec<String>,
    learned: Vec<String>,
    /// Where those that were learned are kept; none: nowhere.
    file: Option<PathBuf>,
}

impl KnownReplicas {
    /// The configured ones, and those that the agent before this one learned and kept in `file`. A file that cannot be read is
    /// of no use and does no harm: the replicas name each other again.
    pub(crate) fn open(configured: Vec<String>, file: PathBuf) -> Self {
        let kept = files::read_json::<Vec<String>>(&file);
        let learned = kept.unwrap_or_else(|error| {
            tracing::warn!(file = %file.display(), %error, "the replicas that were known are forgotten");
            None
        });
        let replicas = Self::of(configured, Some(file));
        replicas.lock().learn(&learned.unwrap_or_default());
        replicas
    }

    /// These, of which nothing is kept.
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

    /// All of them, those of the settings first.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let known = self.lock();
        known
            .configured
            .iter()
            .chain(&known.learned)
            .cloned()
            .collect()
    }

    /// Takes over which replicas there are, beside the configured ones. An older leader names none: then nothing changes.
    pub(crate) fn know(&self, replicas: &[String]) {
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
    /// Whether others are known now.
    fn learn(&mut self, replicas: &[String]) -> bool {
        let is_new = |address: &&String| !self.configured.contains(address);
        let new = replicas.iter().filter(is_new).take(LEARNED_MAX);
        let new: Vec<String> = new.cloned().collect();
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
                "the replicas that are known now cannot be kept: this agent goes on, one that is started later may not find them"
            );
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn all_replicas_are_known_though_all_that_were_configured_are_replaced() {
        let replicas = KnownReplicas::configured(words(&["a:1", "b:1"]));
        replicas.know(&words(&["b:1", "c:1", "d:1"]));
        assert_eq!(replicas.addresses(), words(&["a:1", "b:1", "c:1", "d:1"]));
        replicas.know(&words(&["d:1", "e:1"]));
        assert_eq!(replicas.addresses(), words(&["a:1", "b:1", "d:1", "e:1"]));
        // An older leader does not say.
        replicas.know(&[]);
        assert_eq!(replicas.addresses(), words(&["a:1", "b:1", "d:1", "e:1"]));
    }

    #[test]
    fn the_next_agent_knows_them_too() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("replicas.json");
        let first = KnownReplicas::open(words(&["a:1"]), file.clone());
        first.know(&words(&["c:1", "d:1"]));
        let next = KnownReplicas::open(words(&["b:1", "d:1"]), file.clone());
        assert_eq!(next.addresses(), words(&["b:1", "d:1", "c:1"]));
        std::fs::write(&file, "nonsense").unwrap();
        let after = KnownReplicas::open(words(&["a:1"]), file);
        assert_eq!(after.addresses(), words(&["a:1"]));
    }
}
