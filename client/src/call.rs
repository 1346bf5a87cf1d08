//! One call: tried at one replica after another, round after round, until it is answered or too late.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;
use tonic::{Code, Response, Status};

use crate::client::Client;
use crate::credential::Line;
use crate::error::{ClientError, FailedTry, Refusal};
use crate::retry::{Backoff, Verdict, innermost, judge};

/// How long a call may go on, and how it is named in errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// Completes the sentence "cannot ...".
    pub(crate) name: &'static str,
    /// For all tries together.
    pub(crate) deadline: Duration,
}

/// What a finished try tells.
enum Outcome<Answer> {
    Answered(Answer),
    Unconnected(String),
    /// No answer within this time.
    Silent(Duration),
    Failed(Verdict),
}

/// The tries of one call.
struct Tries {
    operation: Operation,
    began: Instant,
    /// Addresses tried in this round.
    round: Vec<String>,
    /// Per address, what went wrong there last.
    failures: Vec<FailedTry>,
    /// False once a connection of this call was accepted.
    only_unconnected: bool,
    /// Longest wait that a replica asked for in this round.
    floor: Option<Duration>,
    backoff: Backoff,
}

impl Client {
    /// An operation with the client's own deadline.
    pub(crate) fn operation(&self, name: &'static str) -> Operation {
        Operation {
            name,
            deadline: self.config().deadline,
        }
    }

    /// Runs a call to its end. `send` is invoked once per try.
    pub(crate) async fn call<Answer, Send, Sending>(
        &self,
        operation: Operation,
        send: Send,
    ) -> Result<Answer, ClientError>
    where
        Send: Fn(Line) -> Sending,
        Sending: Future<Output = Result<Response<Answer>, Status>>,
    {
        let (answer, _) = self.call_somewhere(operation, send).await?;
        Ok(answer)
    }

    /// As [`Client::call`], and tells which replica answered.
    pub(crate) async fn call_somewhere<Answer, Send, Sending>(
        &self,
        operation: Operation,
        send: Send,
    ) -> Result<(Answer, String), ClientError>
    where
        Send: Fn(Line) -> Sending,
        Sending: Future<Output = Result<Response<Answer>, Status>>,
    {
        let mut tries = Tries::new(self, operation);
        loop {
            let Some(address) = self.members().next_untried(&tries.round) else {
                tries.next_round(self).await?;
                continue;
            };
            match self.try_at(&address, &tries, &send).await {
                Outcome::Answered(answer) => {
                    if !tries.failures.is_empty() {
                        self.members().prefer(&address);
                        self.members().doubt();
                    }
                    self.keep_up();
                    return Ok((answer, address));
                }
                outcome => tries.note(self, address, outcome)?,
            }
        }
    }

    async fn try_at<Answer, Send, Sending>(
        &self,
        address: &str,
        tries: &Tries,
        send: &Send,
    ) -> Outcome<Answer>
    where
        Send: Fn(Line) -> Sending,
        Sending: Future<Output = Result<Response<Answer>, Status>>,
    {
        let limit = tries.remaining().min(self.config().per_try_deadline);
        let whole = async {
            let channel = self.members().channel(address, self.connect_deadline());
            let channel = match channel.await {
                Ok(channel) => channel,
                Err(error) => return Outcome::Unconnected(innermost(&error)),
            };
            match send(channel).await {
                Ok(response) => {
                    self.hear(&response);
                    Outcome::Answered(response.into_inner())
                }
                Err(status) => Outcome::Failed(judge(&status)),
            }
        };
        tokio::time::timeout(limit, whole)
            .await
            .unwrap_or(Outcome::Silent(limit))
    }
}

impl Tries {
    fn new(client: &Client, operation: Operation) -> Self {
        Self {
            operation,
            began: Instant::now(),
            round: Vec::new(),
            failures: Vec::new(),
            only_unconnected: true,
            floor: None,
            backoff: Backoff::new(client.config()),
        }
    }

    fn remaining(&self) -> Duration {
        self.operation.deadline.saturating_sub(self.began.elapsed())
    }

    /// Takes in a failed try; an error if no other would help.
    fn note<Answer>(
        &mut self,
        client: &Client,
        address: String,
        outcome: Outcome<Answer>,
    ) -> Result<(), ClientError> {
        self.round.push(address.clone());
        let cause = match outcome {
            Outcome::Answered(_) => return Ok(()),
            Outcome::Unconnected(cause) => {
                client.members().drop_channel(&address);
                cause
            }
            Outcome::Silent(limit) => {
                self.only_unconnected = false;
                client.members().drop_channel(&address);
                let said_before = self.failures.iter().any(|it| it.address == address);
                if said_before && self.remaining().is_zero() {
                    // The operation's end cut this try short: what the replica said before tells more.
                    return Ok(());
                }
                format!("no answer within {} s", limit.as_secs_f64())
            }
            Outcome::Failed(Verdict::Final(mut refusal)) => {
                if is_strange(&refusal) {
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
            Outcome::Failed(Verdict::Redirect { leader }) => {
                self.only_unconnected = false;
                client.members().set_leader(&leader);
                format!("does not lead, {leader} does")
            }
            Outcome::Failed(Verdict::Again {
                cause,
                transport,
                retry_after,
            }) => {
                self.only_unconnected = false;
                self.floor = self.floor.max(retry_after);
                if transport {
                    client.members().drop_channel(&address);
                } else {
                    client.members().unset_leader(&address);
                }
                cause
            }
        };
        tracing::debug!(%address, %cause, operation = self.operation.name, "a try failed");
        self.failures.retain(|failure| failure.address != address);
        self.failures.push(FailedTry { address, cause });
        Ok(())
    }

    /// Every known replica was tried: waits, or gives up.
    async fn next_round(&mut self, client: &Client) -> Result<(), ClientError> {
        let operation = self.operation.name;
        let never_connected = self.only_unconnected && !client.members().ever_connected();
        if never_connected && self.began.elapsed() >= client.config().unreachable_deadline {
            return Err(ClientError::Unreachable {
                operation,
                tried: std::mem::take(&mut self.failures),
            });
        }
        let wait = self.backoff.next(client.jitter(), self.floor.take());
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

/// Whether an answer is none of a replica's: those give reasons, and know every request of their version.
fn is_strange(refusal: &Refusal) -> bool {
    refusal.code == Code::Unimplemented && refusal.reason == format!("{:?}", refusal.code)
}
