//! Source of the health rules of a worker.
//!
//! A leader identifies rules by the revision that set them and by the fingerprint of their file. The
//! default rules of this build and the last fetched ones on disk are found by fingerprint and not fetched:
//! otherwise all workers of a cluster would fetch the same file whenever their agents restart or a leader
//! sets the rules that they have.

use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_backoff::jitter;
use muster_health::rules::RuleSet;
use muster_model::ids::Revision;
use muster_model::limits::WORKER_MESSAGE_BYTES_MAX;
use muster_proto::v1;
use muster_proto::v1::admin_service_client::AdminServiceClient;
use muster_supervisor::files;
use muster_tls::Dialer;
use tonic::transport::Endpoint;

use crate::limits::{HEALTH_RULES_ANSWER_MAX, HEALTH_RULES_PAUSE};
use crate::metrics;
use crate::replicas::KnownReplicas;

/// Rules and the fingerprint of their file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownRules {
    pub(crate) set: RuleSet,
    pub(crate) sum: u64,
}

impl KnownRules {
    /// Parses a rule file.
    pub(crate) fn of(text: &str) -> Result<Self, String> {
        let set = RuleSet::parse(text);
        Ok(Self {
            set: set.map_err(|error| format!("this build cannot read them: {error}"))?,
            sum: RuleSet::fingerprint(text),
        })
    }

    fn shipped() -> Option<Self> {
        Self::of(RuleSet::SHIPPED_TEXT).ok()
    }
}

/// Finds the rules of a revision: locally, or at any replica that has them.
#[derive(Clone, Debug)]
pub(crate) struct RulesSource {
    replicas: KnownReplicas,
    dialer: Dialer,
    /// File with the last fetched rules.
    kept: Option<PathBuf>,
}

/// Answer of a replica.
enum FetchResult {
    /// The requested rules, and their file.
    Them(Box<KnownRules>, String),
    /// Newer ones, which the leader will announce.
    Newer,
    /// Older ones, or none that can be read now.
    NotYet(String),
}

impl RulesSource {
    /// Fetches from the replicas known at the time.
    pub(crate) fn new(replicas: KnownReplicas) -> Self {
        Self {
            replicas,
            dialer: Dialer::default(),
            kept: None,
        }
    }

    /// Sets the dialer for connections.
    pub(crate) fn dialing(self, dialer: Dialer) -> Self {
        Self { dialer, ..self }
    }

    /// Sets the file that keeps fetched rules.
    pub(crate) fn keeping(self, path: PathBuf) -> Self {
        Self {
            kept: Some(path),
            ..self
        }
    }

    /// The rules of a revision with this fingerprint; none if newer ones were set meanwhile. Unless they
    /// are found locally, retries until a replica has them.
    pub(crate) async fn rules(self, revision: Revision, sum: u64) -> Option<KnownRules> {
        if revision == Revision::default() {
            return KnownRules::shipped();
        }
        if let Some(here) = self.here(sum).await {
            return Some(here);
        }
        let mut is_logged = false;
        loop {
            for address in self.shuffled() {
                let asked = ask(&self.dialer, &address, revision, sum);
                let answer = tokio::time::timeout(HEALTH_RULES_ANSWER_MAX, asked).await;
                match answer.unwrap_or_else(|_| FetchResult::NotYet("no answer in time".to_owned()))
                {
                    FetchResult::Them(rules, text) => {
                        metrics::health_rules("replica");
                        self.keep(text).await;
                        return Some(*rules);
                    }
                    FetchResult::Newer => return None,
                    FetchResult::NotYet(why) if !is_logged => {
                        tracing::warn!(%revision, address, why, "cannot fetch the new health rules yet");
                        is_logged = true;
                    }
                    FetchResult::NotYet(_) => {}
                }
            }
            tokio::time::sleep(HEALTH_RULES_PAUSE).await;
        }
    }

    /// The rules with a fingerprint, if they are the default ones of this build or were fetched before.
    async fn here(&self, sum: u64) -> Option<KnownRules> {
        let is_it = |rules: &KnownRules| rules.sum == sum;
        if let Some(shipped) = KnownRules::shipped().filter(is_it) {
            metrics::health_rules("build");
            return Some(shipped);
        }
        let path = self.kept.clone()?;
        let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(path)).await;
        let kept = KnownRules::of(&read.ok()?.ok()?).ok().filter(is_it)?;
        metrics::health_rules("disk");
        Some(kept)
    }

    async fn keep(&self, text: String) {
        let Some(path) = self.kept.clone() else {
            return;
        };
        let written = tokio::task::spawn_blocking(move || write(&path, &text)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, "storing the health rules failed: the next agent fetches them again");
        }
    }

    /// All replicas in random order, since all workers of a cluster ask at once.
    fn shuffled(&self) -> Vec<String> {
        let mut all = self.replicas.addresses();
        let longest = Duration::from_secs(u64::try_from(all.len()).unwrap_or(u64::MAX));
        let first = usize::try_from(jitter(longest).as_secs()).unwrap_or_default();
        let count = all.len().max(1);
        all.rotate_left(first % count);
        all
    }
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    files::replace_durably(path, text.as_bytes())
}

/// Any replica that has applied the revision will do: this read needs no leader.
async fn ask(dialer: &Dialer, address: &str, revision: Revision, sum: u64) -> FetchResult {
    match read(dialer, address).await {
        Ok(health) if health.rules_revision > revision.get() => FetchResult::Newer,
        Ok(health) if health.rules_revision < revision.get() => FetchResult::NotYet(format!(
            "it has those of revision {}",
            health.rules_revision
        )),
        Ok(health) => match KnownRules::of(&health.rules) {
            Ok(rules) if sum != 0 && rules.sum != sum => {
                FetchResult::NotYet("it has others of that revision".to_owned())
            }
            Ok(rules) => FetchResult::Them(Box::new(rules), health.rules),
            Err(error) => FetchResult::NotYet(error),
        },
        Err(error) => FetchResult::NotYet(error),
    }
}

async fn read(dialer: &Dialer, address: &str) -> Result<v1::GetHealthResponse, String> {
    let endpoint =
        Endpoint::from_shared(format!("http://{address}")).map_err(|error| error.to_string())?;
    let channel = dialer.connect(&endpoint).await;
    let mut client = AdminServiceClient::new(channel.map_err(|error| error.to_string())?)
        .max_decoding_message_size(WORKER_MESSAGE_BYTES_MAX);
    let request = v1::GetHealthRequest {
        consistency: v1::Consistency::Stale.into(),
        only_rules: true,
        ..v1::GetHealthRequest::default()
    };
    let answer = client.get_health(request).await;
    Ok(answer
        .map_err(|status| status.message().to_owned())?
        .into_inner())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    /// Replicas do not answer, so the result is local.
    async fn without_replicas(source: RulesSource, sum: u64) -> Option<KnownRules> {
        let asked = source.rules(Revision(7), sum);
        let asked = tokio::time::timeout(Duration::from_secs(60), asked);
        asked.await.ok().flatten()
    }

    #[tokio::test(start_paused = true)]
    async fn known_rules_are_used_without_replicas_and_others_once_fetched() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("health-rules.toml");
        let source =
            || RulesSource::new(KnownReplicas::configured(Vec::new())).keeping(path.clone());
        let shipped = KnownRules::shipped().unwrap();
        let first = source().rules(Revision(0), 0).await;
        assert_eq!(first.as_ref(), Some(&shipped));
        // The first leader logs the default rules of this build.
        let again = without_replicas(source(), shipped.sum).await;
        assert_eq!(again.as_ref(), Some(&shipped));
        let own = RuleSet::shipped_text_with(60, 60);
        let sum = RuleSet::fingerprint(&own);
        assert!(without_replicas(source(), sum).await.is_none());
        source().keep(own.clone()).await;
        let kept = without_replicas(source(), sum).await;
        assert_eq!(kept, KnownRules::of(&own).ok());
        for others in [sum ^ 1, 0] {
            assert!(without_replicas(source(), others).await.is_none());
        }
        std::fs::write(&path, "damaged").unwrap();
        assert!(without_replicas(source(), sum).await.is_none());
    }

    #[test]
    fn every_replica_is_asked_once_a_round() {
        let all: Vec<String> = (0..5).map(|number| number.to_string()).collect();
        for _ in 0..20 {
            let source = RulesSource::new(KnownReplicas::configured(all.clone()));
            let mut asked = source.shuffled();
            asked.sort();
            assert_eq!(asked, all);
        }
        let nobody = RulesSource::new(KnownReplicas::configured(Vec::new()));
        assert!(nobody.shuffled().is_empty());
    }
}
