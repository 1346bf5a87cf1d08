//! Execution of a call over the client's connections.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;
use tonic::{Code, Response, Status, TimeoutExpired};

use crate::calls::{Failure, Operation};
use crate::client::Client;
use crate::error::ClientError;
use crate::transport::credential::AuthenticatedChannel;

impl Client {
    /// An operation with the client's default deadline.
    pub(crate) fn operation(&self, name: &'static str) -> Operation {
        Operation {
            name,
            deadline: self.config().deadline,
        }
    }

    /// Executes a call with one answer. `send` is invoked once per attempt; the replica is sent the timeout
    /// of the attempt, so that it reports the reason of a missing answer before that time is over.
    pub(crate) async fn call<Answer, Send, Sending>(
        &self,
        operation: Operation,
        send: Send,
    ) -> Result<Answer, ClientError>
    where
        Send: Fn(AuthenticatedChannel) -> Sending,
        Sending: Future<Output = Result<Response<Answer>, Status>>,
    {
        let per_try = self.config().per_try_deadline;
        self.call_with_timeout(operation, per_try, send).await
    }

    /// As [`Client::call`], with a separate timeout for each attempt.
    pub(crate) async fn call_with_timeout<Answer, Send, Sending>(
        &self,
        operation: Operation,
        per_try: Duration,
        send: Send,
    ) -> Result<Answer, ClientError>
    where
        Send: Fn(AuthenticatedChannel) -> Sending,
        Sending: Future<Output = Result<Response<Answer>, Status>>,
    {
        let end = Instant::now() + operation.deadline;
        let until = || Some(end.min(Instant::now() + per_try));
        let (answer, _) = self.call_within(operation, per_try, until, send).await?;
        Ok(answer)
    }

    /// Opens a stream, whose items may take any time. Returns the replica that serves it too.
    pub(crate) async fn open_stream<Answer, Send, Sending>(
        &self,
        operation: Operation,
        send: Send,
    ) -> Result<(Answer, String), ClientError>
    where
        Send: Fn(AuthenticatedChannel) -> Sending,
        Sending: Future<Output = Result<Response<Answer>, Status>>,
    {
        let per_try = self.config().per_try_deadline;
        self.call_within(operation, per_try, || None, send).await
    }

    /// Executes a call; `until` is the end of an attempt that starts now, if it is to be sent to the
    /// replica.
    async fn call_within<Answer, Send, Sending>(
        &self,
        operation: Operation,
        per_try: Duration,
        until: impl Fn() -> Option<Instant>,
        send: Send,
    ) -> Result<(Answer, String), ClientError>
    where
        Send: Fn(AuthenticatedChannel) -> Sending,
        Sending: Future<Output = Result<Response<Answer>, Status>>,
    {
        let (send, until) = (&send, &until);
        let attempt = |address: String| async move { self.try_at(&address, until(), send).await };
        let broken = |address: &str| self.connections().drop(address);
        let calls = self.calls();
        let answered = calls
            .run_with_timeout(operation, per_try, attempt, broken)
            .await?;
        self.refresh_if_due();
        Ok(answered)
    }

    async fn try_at<Answer, Send, Sending>(
        &self,
        address: &str,
        until: Option<Instant>,
        send: &Send,
    ) -> Result<Answer, Failure>
    where
        Send: Fn(AuthenticatedChannel) -> Sending,
        Sending: Future<Output = Result<Response<Answer>, Status>>,
    {
        let connections = self.connections();
        let limit = self.connect_deadline();
        let channel = connections.open(address, limit, until).await?;
        self.roster().connected();
        match send(channel).await {
            Ok(response) => {
                connections.record_success();
                self.record_membership(&response);
                Ok(response.into_inner())
            }
            // No answer arrived. The timeout of this attempt ends it with its own error.
            Err(status) if until.is_some() && is_out_of_time(&status) => {
                std::future::pending().await
            }
            Err(status) => Err(connections.classify(address, status, limit).await),
        }
    }
}

/// Whether a status was produced by tonic, on either side, for an expired timeout.
fn is_out_of_time(status: &Status) -> bool {
    status.code() == Code::Cancelled && status.message() == TimeoutExpired(()).to_string()
}
