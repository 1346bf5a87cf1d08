//! A client that asks one replica alone, whatever becomes of it. What it is told is judged as what every user is told: an old leader
//! that still answers is found out by what the majority has.

use std::sync::Arc;

use muster_client::{Client, ClientConfig, ClientError};
use muster_core::ids::{JobId, RequestId};
use muster_proto::v1;
use rand::Rng as _;
use rand_chacha::ChaCha8Rng;
use tokio::time::{Instant, sleep};

use crate::run::history::History;
use crate::run::options::{CALL_PAUSE, TRY_DEADLINE, USERS};

/// Such a client, with what it submits.
pub(super) struct Loyal {
    client: Client,
    history: Arc<History>,
    random: ChaCha8Rng,
    spec: v1::JobSpec,
}

impl Loyal {
    /// One that waits for no answer longer than one try may take.
    ///
    /// # Errors
    /// If the address is none.
    pub(super) async fn to(
        address: String,
        history: Arc<History>,
        random: ChaCha8Rng,
        spec: v1::JobSpec,
    ) -> Result<Self, ClientError> {
        let config = ClientConfig {
            discover: false,
            deadline: TRY_DEADLINE,
            per_try_deadline: TRY_DEADLINE,
            ..ClientConfig::new(vec![address])
        };
        Ok(Self {
            client: Client::connect(config).await?,
            history,
            random,
            spec,
        })
    }

    /// Submits a job; none if that is not answered.
    pub(super) async fn submit(&mut self) -> Option<JobId> {
        let request = RequestId(self.random.random());
        let caller = (USERS, &self.client);
        let answer = self.history.submit(caller, request, self.spec.clone());
        answer.await.ok().map(|answer| answer.job)
    }

    /// Submits jobs, and reads one, until a time; says how often it asked.
    pub(super) async fn insist(&mut self, job: Option<JobId>, until: Instant) -> usize {
        let mut asked = 0;
        while Instant::now() < until {
            self.submit().await;
            asked += 1;
            if let Some(job) = job {
                let _noted = self.history.read((USERS, &self.client), job).await;
                asked += 1;
            }
            sleep(CALL_PAUSE).await;
        }
        asked
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use tokio::time::Duration;

    use super::*;
    use rand::SeedableRng as _;

    #[tokio::test]
    async fn what_nobody_answers_is_noted_as_well() {
        let history = Arc::new(History::default());
        let nobody = "127.0.0.1:1".to_owned();
        let random = ChaCha8Rng::seed_from_u64(0);
        let loyal = Loyal::to(nobody, Arc::clone(&history), random, v1::JobSpec::default());
        let mut loyal = loyal.await.unwrap();
        let until = Instant::now() + Duration::from_millis(10);
        let asked = loyal.insist(Some(JobId(1)), until).await;
        let noted = history.operations();
        assert!(asked >= 2 && noted.len() == asked);
        assert!(noted.iter().all(|it| it.answer().is_none()));
    }
}
