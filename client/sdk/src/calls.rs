//! Call execution: attempts at one replica after another, in rounds, until an answer or the deadline.
//!
//! The transport of an attempt is abstract: [`Client`](crate::Client) uses connections, the deterministic
//! simulation its simulated network.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use muster_backoff::Backoff;
use muster_tls::TlsMismatch;
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::config::ClientConfig;
use crate::error::{ClientError, FailedAttempt, Refusal, seconds};
use crate::transport::retry::{FailureClass, classify, temporary_refusal};
pub use crate::transport::roster::Roster;

/// Deadline of a call, and its name in errors.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Completes the sentence "cannot ...".
    pub name: &'static str,
    /// For all attempts together.
    pub deadline: Duration,
}

/// An unsuccessful attempt.
#[derive(Debug)]
pub enum Failure {
    /// The replica could not be reached, with the cause for operators.
    Unreachable(String),
    /// The replica was reached, but TLS settings do not match: the mismatch, and its text for operators.
    TlsMismatch(TlsMismatch, String),
    /// The replica returned an error, or the connection broke.
    Answered(Status),
}

/// State shared by all calls of a client.
#[derive(Debug)]
pub struct Calls {
    config: ClientConfig,
    roster: Roster,
    /// Seed of the next call's waits.
    seed: AtomicU64,
    /// Address of the replica whose answer or refusal ended the last call.
    answered_by: Mutex<Option<String>>,
}

/// Result of a finished attempt.
enum Outcome<Answer> {
    Answered(Answer),
    Unconnected(String),
    TlsMismatch(TlsMismatch, String),
    /// No answer within this time.
    Silent(Duration),
    Failed(FailureClass),
}

/// Attempts of one call.
struct Attempts {
    operation: Operation,
    began: Instant,
    /// Addresses tried in this round.
    round: Vec<String>,
    /// Last failure, per address.
    failures: Vec<FailedAttempt>,
    /// False once a peer with matching TLS settings accepted a connection of this call.
    only_unconnected: bool,
    /// Whether TLS settings of a replica and the client do not match.
    has_tls_mismatch: bool,
    /// Longest wait requested by a replica in this round.
    floor: Option<Duration>,
    /// Waits between rounds.
    backoff: Backoff,
}

impl Calls {
    /// Calls that start with the addresses and timeouts of a configuration. Waits between rounds are drawn
    /// from `seed`.
    #[must_use]
    pub fn seeded(config: ClientConfig, seed: u64) -> Self {
        Self {
            roster: Roster::new(&config.addresses),
            seed: AtomicU64::new(seed),
            answered_by: Mutex::default(),
            config,
        }
    }

    /// As [`Calls::seeded`], with a seed that differs between processes.
    pub(crate) fn new(config: ClientConfig) -> Self {
        let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
        Self::seeded(config, high ^ low)
    }

    /// The settings.
    pub(crate) const fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// The known replicas.
    #[must_use]
    pub const fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Address of the replica that ended the last call, by an answer or a final refusal; none if none did.
    /// See [`Client::answered_by`](crate::Client::answered_by).
    pub(crate) fn answered_by(&self) -> Option<String> {
        self.last_answer().clone()
    }

    fn last_answer(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        // An address is complete after every write.
        self.answered_by
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes a call, and returns the answering replica too. `attempt` makes one attempt at an address;
    /// `broken` is called with each address whose connection has become unusable.
    ///
    /// # Errors
    /// [`ClientError::Refused`] for a final refusal by a replica; [`ClientError::Unreachable`] and
    /// [`ClientError::DeadlineExceeded`] list every address that was tried, with its failure.
    pub async fn run<Answer, Attempt, Attempted>(
        &self,
        operation: Operation,
        attempt: Attempt,
        broken: impl Fn(&str),
    ) -> Result<(Answer, String), ClientError>
    where
        Attempt: Fn(String) -> Attempted,
        Attempted: Future<Output = Result<Answer, Failure>>,
    {
        let per_try = self.config.per_try_deadline;
        self.run_with_timeout(operation, per_try, attempt, broken)
            .await
    }

    /// As [`Calls::run`], with a separate timeout for each attempt: for operations that take a replica
    /// longer than usual.
    pub(crate) async fn run_with_timeout<Answer, Attempt, Attempted>(
        &self,
        operation: Operation,
        per_try: Duration,
        attempt: Attempt,
        broken: impl Fn(&str),
    ) -> Result<(Answer, String), ClientError>
    where
        Attempt: Fn(String) -> Attempted,
        Attempted: Future<Output = Result<Answer, Failure>>,
    {
        *self.last_answer() = None;
        let seed = self.seed.fetch_add(1, Ordering::Relaxed);
        let backoff = Backoff::seeded(seed, self.config.backoff_base, self.config.backoff_max);
        let mut tries = Attempts::new(operation, backoff);
        loop {
            let Some(address) = self.roster.next_untried(&tries.round) else {
                tries.next_round(self).await?;
                continue;
            };
            let limit = tries.remaining().min(per_try);
            let attempted = tokio::time::timeout(limit, attempt(address.clone()));
            let outcome = match attempted.await {
                Ok(Ok(answer)) => Outcome::Answered(answer),
                Ok(Err(Failure::Unreachable(cause))) => Outcome::Unconnected(cause),
                Ok(Err(Failure::TlsMismatch(mismatch, cause))) => {
                    Outcome::TlsMismatch(mismatch, cause)
                }
                Ok(Err(Failure::Answered(status))) => Outcome::Failed(self.classify(&status)),
                Err(_) => Outcome::Silent(limit),
            };
            if !outcome.is_answer() {
                self.roster.unset_leader(&address);
                broken(&address);
            }
            if outcome.is_final() {
                *self.last_answer() = Some(address.clone());
            }
            match outcome {
                Outcome::Answered(answer) => {
                    if !tries.failures.is_empty() {
                        self.roster.prefer(&address);
                        self.roster.mark_stale();
                    }
                    return Ok((answer, address));
                }
                outcome => tries.record(&self.roster, address, outcome)?,
            }
        }
    }

    /// Classifies the status of a failed attempt.
    fn classify(&self, status: &Status) -> FailureClass {
        match temporary_refusal(status) {
            Some(refusal) if !self.config.retries_temporary_refusals => {
                FailureClass::Final(refusal)
            }
            _ => classify(status),
        }
    }
}

impl<Answer> Outcome<Answer> {
    /// Whether the replica answered. If it did not, the connection is no longer usable.
    const fn is_answer(&self) -> bool {
        match self {
            Self::Unconnected(_) | Self::TlsMismatch(..) | Self::Silent(_) => false,
            Self::Failed(FailureClass::Again { transport, .. }) => !*transport,
            Self::Answered(_) | Self::Failed(_) => true,
        }
    }

    /// Whether no other attempt would change it.
    const fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Answered(_) | Self::Failed(FailureClass::Final(_))
        )
    }
}

impl Attempts {
    fn new(operation: Operation, backoff: Backoff) -> Self {
        Self {
            operation,
            began: Instant::now(),
            round: Vec::new(),
            failures: Vec::new(),
            only_unconnected: true,
            has_tls_mismatch: false,
            floor: None,
            backoff,
        }
    }

    fn remaining(&self) -> Duration {
        self.operation.deadline.saturating_sub(self.began.elapsed())
    }

    /// Records a failed attempt; returns an error if no other attempt would help.
    fn record<Answer>(
        &mut self,
        roster: &Roster,
        address: String,
        outcome: Outcome<Answer>,
    ) -> Result<(), ClientError> {
        self.round.push(address.clone());
        self.only_unconnected &=
            matches!(outcome, Outcome::Unconnected(_) | Outcome::TlsMismatch(..));
        let is_answer = outcome.is_answer();
        let mut mismatch = None;
        let cause = match outcome {
            Outcome::Answered(_) => return Ok(()),
            Outcome::Unconnected(cause) => cause,
            Outcome::TlsMismatch(found, cause) => {
                self.has_tls_mismatch = true;
                mismatch = Some(found);
                cause
            }
            Outcome::Silent(limit) => {
                let has_failed_before = self.failures.iter().any(|it| it.address == address);
                if has_failed_before && self.remaining().is_zero() {
                    // The end of the operation cut this attempt short: the replica's earlier failure is
                    // more informative.
                    return Ok(());
                }
                format!("no answer within {} s", seconds(&limit))
            }
            Outcome::Failed(FailureClass::Final(mut refusal)) => {
                if is_foreign(&refusal) {
                    refusal.message = format!(
                        "{address} answers, but not as a scheduler replica of this version: {}",
                        refusal.message
                    );
                }
                return Err(ClientError::Refused {
                    operation: self.operation.name,
                    refusal,
                });
            }
            Outcome::Failed(FailureClass::Redirect { leader }) => {
                roster.set_leader(&leader);
                format!("does not lead, {leader} does")
            }
            Outcome::Failed(FailureClass::Again {
                cause, retry_after, ..
            }) => {
                self.floor = self.floor.max(retry_after);
                roster.unset_leader(&address);
                cause
            }
        };
        tracing::debug!(%address, %cause, operation = self.operation.name, "an attempt failed");
        self.failures.retain(|failure| failure.address != address);
        self.failures.push(FailedAttempt {
            address,
            cause,
            is_answer,
            mismatch,
        });
        Ok(())
    }

    /// Every known replica was tried: waits for the next round, or gives up.
    async fn next_round(&mut self, calls: &Calls) -> Result<(), ClientError> {
        let operation = self.operation.name;
        // A connection that TLS rejected does not count as accepted.
        let never_connected =
            self.only_unconnected && (self.has_tls_mismatch || !calls.roster.ever_connected());
        if never_connected && self.began.elapsed() >= calls.config.unreachable_deadline {
            return Err(ClientError::Unreachable {
                operation,
                tried: std::mem::take(&mut self.failures),
            });
        }
        let floor = self.floor.take().unwrap_or_default();
        let wait = self.backoff.next_wait().max(floor);
        if wait >= self.remaining() {
            let tried = std::mem::take(&mut self.failures);
            return Err(if never_connected {
                ClientError::Unreachable { operation, tried }
            } else {
                ClientError::DeadlineExceeded {
                    operation,
                    deadline: self.operation.deadline,
                    tried,
                }
            });
        }
        tokio::time::sleep(wait).await;
        self.round.clear();
        Ok(())
    }
}

/// Whether an answer is not a replica's: those have reasons, and know every request of their version.
fn is_foreign(refusal: &Refusal) -> bool {
    refusal.code == Code::Unimplemented && refusal.reason == format!("{:?}", refusal.code)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::cell::{Cell, RefCell};

    use muster_model::rejection::Rejection;
    use muster_proto::status::{not_leader, status_of};

    use super::*;

    const OPERATION: Operation = Operation {
        name: "test",
        deadline: Duration::from_secs(30),
    };

    /// Address of each attempt of a call, if the replicas answer like this.
    async fn tried(
        answer: impl Fn(&str) -> Option<Result<u8, Failure>>,
    ) -> (Result<(u8, String), ClientError>, Vec<String>, Vec<String>) {
        let calls = Calls::seeded(ClientConfig::new(["a:1", "b:1", "c:1"]), 7);
        let (asked, broken) = (RefCell::default(), RefCell::default());
        let (asked_ref, answer) = (&asked, &answer);
        let attempt = |address: String| async move {
            let answer = answer(&address);
            let asked: &RefCell<Vec<String>> = asked_ref;
            asked.borrow_mut().push(address);
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        };
        let forget = |address: &str| {
            let broken: &RefCell<Vec<String>> = &broken;
            broken.borrow_mut().push(address.to_owned());
        };
        let result = calls.run(OPERATION, attempt, forget).await;
        (result, asked.take(), broken.take())
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_skips_dead_and_silent_replicas_and_reaches_the_leader() {
        let (result, asked, broken) = tried(|address| match address {
            "a:1" => Some(Err(Failure::Unreachable("refused".to_owned()))),
            "b:1" => None,
            "c:1" => Some(Err(Failure::Answered(not_leader(Some("d:1"))))),
            _ => Some(Ok(1)),
        })
        .await;
        assert_eq!(result.unwrap(), (1, "d:1".to_owned()));
        assert_eq!(asked, ["a:1", "b:1", "c:1", "d:1"]);
        assert_eq!(broken, ["a:1", "b:1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_replica_that_answered_the_last_call_is_known() {
        let calls = Calls::seeded(ClientConfig::new(["a:1", "b:1"]), 7);
        assert_eq!(calls.answered_by(), None);
        let answerer = |answer: fn(&str) -> Result<u8, Failure>| {
            let attempt = move |address: String| async move { answer(&address) };
            let call = calls.run(OPERATION, attempt, |_| ());
            async {
                drop(call.await);
                calls.answered_by()
            }
        };
        let answered = answerer(|address| match address {
            "a:1" => Err(Failure::Unreachable("refused".to_owned())),
            _ => Ok(1),
        });
        assert_eq!(answered.await.as_deref(), Some("b:1"));
        let refused = answerer(|_| Err(Failure::Answered(Status::invalid_argument("no"))));
        assert!(refused.await.is_some());
        let silent = answerer(|_| Err(Failure::Answered(not_leader(None))));
        assert_eq!(silent.await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unanswered_call_ends_and_names_the_replicas_that_it_tried() {
        let began = Instant::now();
        let (result, asked, _) = tried(|address| match address {
            "a:1" => Some(Err(Failure::Unreachable("refused".to_owned()))),
            "b:1" => Some(Err(Failure::Answered(not_leader(None)))),
            _ => None,
        })
        .await;
        let Err(ClientError::DeadlineExceeded { mut tried, .. }) = result else {
            panic!("{result:?}");
        };
        tried.sort_by(|one, other| one.address.cmp(&other.address));
        let answers: Vec<_> = tried
            .iter()
            .map(|it| (&*it.address, it.is_answer))
            .collect();
        assert_eq!(answers, [("a:1", false), ("b:1", true), ("c:1", false)]);
        assert!(asked.len() > 12, "{} tries", asked.len());
        assert!(began.elapsed() <= OPERATION.deadline);
    }

    /// Result of a call whose queue is full, and the number of attempts.
    async fn ends_while_full(retries_temporary_refusals: bool) -> (ClientError, u32) {
        let config = ClientConfig {
            retries_temporary_refusals,
            ..ClientConfig::new(["a:1"])
        };
        let calls = Calls::seeded(config, 7);
        let asked = Cell::new(0);
        let attempt = |_: String| {
            asked.set(asked.get() + 1);
            let full = Rejection::QueueFull {
                queue: "night".to_owned(),
                limit: 1,
            };
            async move { Err::<u8, Failure>(Failure::Answered(status_of(&full))) }
        };
        let result = calls.run(OPERATION, attempt, |_| {}).await;
        (result.unwrap_err(), asked.get())
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_is_a_refusal_unless_the_caller_waits_for_room() {
        let (error, asked) = ends_while_full(false).await;
        assert_eq!((error.reason(), asked), (Some("QUEUE_FULL"), 1));
        let (error, asked) = ends_while_full(true).await;
        assert!(
            matches!(error, ClientError::DeadlineExceeded { .. }),
            "{error}"
        );
        assert!(asked > 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_may_have_a_longer_deadline_than_the_default() {
        let calls = Calls::seeded(ClientConfig::new(["a:1"]), 7);
        let attempt = |_: String| async {
            tokio::time::sleep(Duration::from_secs(6)).await;
            Ok::<u8, Failure>(1)
        };
        let per_try = Duration::from_secs(12);
        let answered = calls
            .run_with_timeout(OPERATION, per_try, attempt, |_| {})
            .await;
        assert_eq!(answered.unwrap().0, 1);
        let lost = calls.run(OPERATION, attempt, |_| {}).await;
        assert!(lost.is_err(), "{lost:?}");
    }
}
