//! One call of a client over its connections.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;
use tonic::{Code, Response, Status, TimeoutExpired};

use crate::calls::{Failure, Operation};
use crate::client::Client;
use crate::credential::Line;
use crate::error::ClientError;

impl Client {
    /// An operation with the client's own deadline.
    pub(crate) fn operation(&self, name: &'static str) -> Operation {
        Operation {
            name,
            deadline: self.config().deadline,
        }
    }

    /// Runs a call with one answer to its end. `send` is invoked once per try; the replica is told how long this side waits for it, so
    /// that it says why it has no answer before that time is over.
    pub(crate) async fn call<Answer, Send, Sending>(
        &self,
        operation: Operation,
        send: Send,
    ) -> Result<Answer, ClientError>
    where
        Send: Fn(Line) -> Sending,
        Sending: Future<Output = Result<Response<Answer>, Status>>,
    {
        let per_try = self.config().per_try_deadline;
        self.call_patiently((operation, per_try), send).await
    }

    /// As [`Client::call`], with a limit of its own for each try.
    pub(crate) async fn call_patiently<Answer, Send, Sending>(
        &self,
        (operation, per_try): (Operation, Duration),
        send: Send,
    ) -> Result<Answer, ClientError>
    where
        Send: Fn(Line) -> Sending,
        Sending: Future<Output = Result<Response<Answer>, Status>>,
    {
        let end = Instant::now() + operation.deadline;
        let until = || Some(end.min(Instant::now() + per_try));
        let (answer, _) = self.call_within((operation, per_try), until, send).await?;
        Ok(answer)
    }

    /// Opens a stream: what comes over it may take any time. Tells which replica serves it.
    pub(crate) async fn open_stream<Answer, Send, Sending>(
        &self,
        operation: Operation,
        send: Send,
    ) -> Result<(Answer, String), ClientError>
    where
        Send: Fn(Line) -> Sending,
        Sending: Future<Output = Result<Response<Answer>, Status>>,
    {
        let per_try = self.config().per_try_deadline;
        self.call_within((operation, per_try), || None, send).await
    }

    /// Runs a call; `until` is when a try that begins now ends, if the replica is to be told.
    async fn call_within<Answer, Send, Sending>(
        &self,
        limits: (Operation, Duration),
        until: impl Fn() -> Option<Instant>,
        send: Send,
    ) -> Result<(Answer, String), ClientError>
    where
        Send: Fn(Line) -> Sending,
        Sending: Future<Output = Result<Response<Answer>, Status>>,
    {
        let (send, until) = (&send, &until);
        let carry = |address: String| async move { self.try_at(&address, until(), send).await };
        let broken = |address: &str| self.connections().drop(address);
        let calls = self.calls();
        let answered = calls.run_patiently(limits, carry, broken).await?;
        self.keep_up();
        Ok(answered)
    }

    async fn try_at<Answer, Send, Sending>(
        &self,
        address: &str,
        until: Option<Instant>,
        send: &Send,
    ) -> Result<Answer, Failure>
    where
        Send: Fn(Line) -> Sending,
        Sending: Future<Output = Result<Response<Answer>, Status>>,
    {
        let connections = self.connections();
        let limit = self.connect_deadline();
        let line = connections.open(address, limit, until).await?;
        self.roster().connected();
        match send(line).await {
            Ok(response) => {
                connections.answered();
                self.hear(&response);
                Ok(response.into_inner())
            }
            // Nobody answered. Whoever counts the time of this try ends it, and says so.
            Err(status) if until.is_some() && is_out_of_time(&status) => {
                std::future::pending().await
            }
            Err(status) => Err(connections.judge(address, status, limit).await),
        }
    }
}

/// Whether a status is tonic's own word, on either side, for a time that is over.
fn is_out_of_time(status: &Status) -> bool {
    status.code() == Code::Cancelled && status.message() == TimeoutExpired(()).to_string()
}
