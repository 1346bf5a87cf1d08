//! One call of a client over its connections.

use std::future::Future;
use std::time::Duration;

use tonic::{Response, Status};

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
        let (answer, _) = self.call_within((operation, per_try), send).await?;
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
        let per_try = self.config().per_try_deadline;
        self.call_within((operation, per_try), send).await
    }

    async fn call_within<Answer, Send, Sending>(
        &self,
        patience: (Operation, Duration),
        send: Send,
    ) -> Result<(Answer, String), ClientError>
    where
        Send: Fn(Line) -> Sending,
        Sending: Future<Output = Result<Response<Answer>, Status>>,
    {
        let send = &send;
        let carry = |address: String| async move { self.try_at(&address, send).await };
        let broken = |address: &str| self.connections().drop(address);
        let calls = self.calls();
        let answered = calls.run_patiently(patience, carry, broken).await?;
        self.keep_up();
        Ok(answered)
    }

    async fn try_at<Answer, Send, Sending>(
        &self,
        address: &str,
        send: &Send,
    ) -> Result<Answer, Failure>
    where
        Send: Fn(Line) -> Sending,
        Sending: Future<Output = Result<Response<Answer>, Status>>,
    {
        let connections = self.connections();
        let line = connections.open(address, self.connect_deadline()).await?;
        self.roster().connected();
        match send(line).await {
            Ok(response) => {
                connections.answered();
                self.hear(&response);
                Ok(response.into_inner())
            }
            Err(status) => Err(connections
                .judge(address, status, self.connect_deadline())
                .await),
        }
    }
}
