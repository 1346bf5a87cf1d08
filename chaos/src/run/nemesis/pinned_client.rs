//! Client pinned to one replica, even after that is isolated or deposed.
//! Its answers are checked like those of every user: an old leader that still answers contradicts the majority.

use std::sync::Arc;

use muster_client::{Client, ClientConfig, ClientError};
use muster_model::ids::{JobId, RequestId};
use muster_proto::v1;
use rand::Rng as _;
use rand_chacha::ChaCha8Rng;
use tokio::time::{Instant, sleep};

use crate::run::history::History;
use crate::run::options::{CALL_PAUSE, PINNED_CLIENT, PINNED_CLIENT_DEADLINE};

/// A pinned client with its workload.
pub(super) struct PinnedClient {
    client: Client,
    history: Arc<History>,
    random: ChaCha8Rng,
    spec: v1::JobSpec,
}

impl PinnedClient {
    /// A client with a short deadline for each answer.
    ///
    /// # Errors
    /// If the address is invalid.
    pub(super) async fn to(
        address: String,
        history: Arc<History>,
        random: ChaCha8Rng,
        spec: v1::JobSpec,
    ) -> Result<Self, ClientError> {
        let config = ClientConfig {
            discover: false,
            deadline: PINNED_CLIENT_DEADLINE,
            per_try_deadline: PINNED_CLIENT_DEADLINE,
            ..ClientConfig::new(vec![address])
        };
        Ok(Self {
            client: Client::connect(config).await?,
            history,
            random,
            spec,
        })
    }

    /// Submits a job; `None` if unanswered.
    pub(super) async fn submit(&mut self) -> Option<JobId> {
        let request = RequestId(self.random.random());
        let spec = self.spec.clone();
        let answer = self
            .history
            .submit(PINNED_CLIENT, &self.client, request, spec);
        answer.await.ok().map(|answer| answer.job)
    }

    /// Reads a job and submits others until a deadline; returns whether the replica responded at all: it
    /// answers from local knowledge at any time.
    pub(super) async fn insist(&mut self, job: Option<JobId>, until: Instant) -> bool {
        let mut is_reached = false;
        while Instant::now() < until {
            if let Some(job) = job {
                let _noted = self.history.read(PINNED_CLIENT, &self.client, job).await;
            }
            self.submit().await;
            if !is_reached {
                let status = self.client.status(v1::Consistency::Stale);
                is_reached = status.await.is_ok();
            }
            sleep(CALL_PAUSE).await;
        }
        is_reached
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rand::SeedableRng as _;
    use tokio::time::Duration;

    use super::*;

    #[tokio::test]
    async fn unanswered_calls_are_recorded_too() {
        let history = Arc::new(History::default());
        let unreachable = "127.0.0.1:1".to_owned();
        let random = ChaCha8Rng::seed_from_u64(0);
        let client = PinnedClient::to(
            unreachable,
            Arc::clone(&history),
            random,
            v1::JobSpec::default(),
        );
        let mut client = client.await.unwrap();
        let until = Instant::now() + Duration::from_millis(10);
        assert!(!client.insist(Some(JobId(1)), until).await);
        let noted = history.operations();
        assert!(noted.len() >= 2);
        assert!(noted.iter().all(|it| it.answer().is_none()));
    }
}
