//! Tokens with which workers without a certificate join.

use std::time::Duration;

use muster_model::ids::Revision;
use muster_proto::v1;
use muster_tls::{AuthoritiesHash, JoinToken};

use crate::client::{Client, admin, joining, new_request_id};
use crate::error::ClientError;

/// Options of a join token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinTokenOptions {
    /// Validity; whole milliseconds.
    pub ttl: Duration,
    /// Number of workers that may join.
    pub uses_max: u32,
    /// Name pattern of the hosts that may join, with `*` for any characters; none: every host.
    pub host_pattern: Option<String>,
}

impl Client {
    /// Creates a join token. The cluster stores only its hash; the token contains the hash of the cluster's
    /// authorities, so that workers can verify the cluster.
    ///
    /// # Errors
    /// Those of a call; `NO_TLS` if the cluster has no certificates, `CLUSTER_FULL`, `INVALID_REQUEST` for
    /// options out of range.
    pub async fn add_join_token(
        &self,
        author: &str,
        options: JoinTokenOptions,
    ) -> Result<(JoinToken, Revision), ClientError> {
        let token = JoinToken::random(&self.authorities().await?);
        let request = v1::AddJoinTokenRequest {
            request_id: new_request_id(),
            author: author.to_owned(),
            id: token.id().unwrap_or_default().to_owned(),
            token_hash: token.hash().to_vec().into(),
            ttl_ms: u64::try_from(options.ttl.as_millis()).unwrap_or(u64::MAX),
            uses_max: options.uses_max,
            host_pattern: options.host_pattern,
        };
        let operation = self.operation("make the join token");
        let answer = self.call(operation, |channel| {
            let request = request.clone();
            async move { admin(channel).add_join_token(request).await }
        });
        let revision = Revision(answer.await?.revision);
        Ok((token, revision))
    }

    /// Revokes a join token.
    ///
    /// # Errors
    /// Those of a call; `UNKNOWN_JOIN_TOKEN`.
    pub async fn revoke_join_token(&self, author: &str, id: &str) -> Result<Revision, ClientError> {
        let request = v1::RevokeJoinTokenRequest {
            request_id: new_request_id(),
            author: author.to_owned(),
            id: id.to_owned(),
        };
        let operation = self.operation("revoke the join token");
        let answer = self.call(operation, |channel| {
            let request = request.clone();
            async move { admin(channel).revoke_join_token(request).await }
        });
        Ok(Revision(answer.await?.revision))
    }

    /// Lists all join tokens, ascending by name.
    ///
    /// # Errors
    /// Those of a call.
    pub async fn list_join_tokens(
        &self,
        consistency: v1::Consistency,
    ) -> Result<v1::ListJoinTokensResponse, ClientError> {
        let request = v1::ListJoinTokensRequest {
            consistency: consistency.into(),
        };
        let operation = self.operation("list the join tokens");
        self.call(operation, |channel| async move {
            admin(channel).list_join_tokens(request).await
        })
        .await
    }

    /// Reads the hash of the authorities by which workers verify the cluster.
    async fn authorities(&self) -> Result<AuthoritiesHash, ClientError> {
        const NAME: &str = "read the cluster's authorities";
        let answer = self.call(self.operation(NAME), |channel| async move {
            let request = v1::GetAuthoritiesRequest {};
            joining(channel).get_authorities(request).await
        });
        let authorities = AuthoritiesHash::of(&answer.await?.authorities_pem);
        authorities.ok_or_else(|| ClientError::Malformed {
            operation: NAME,
            detail: "it contains no certificate".to_owned(),
        })
    }
}
