//! Tokens by which workers without a certificate join.

use std::time::Duration;

use muster_model::ids::Revision;
use muster_proto::v1;
use muster_tls::{AuthoritiesHash, JoinToken};

use crate::client::{Client, admin, joining, new_request_id};
use crate::error::ClientError;

/// What a join token allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinTokenOptions {
    /// How long it counts; whole milliseconds.
    pub ttl: Duration,
    /// Workers that it lets in.
    pub uses_max: u32,
    /// The hosts that it lets in, by name, with `*` for any letters; none: every host.
    pub host_pattern: Option<String>,
}

impl Client {
    /// Makes a join token. The cluster keeps nothing but its hash; the token holds that of the cluster's authorities, so that
    /// workers know whom they speak with.
    ///
    /// # Errors
    /// Those of a call; `NO_TLS` where nobody has certificates, `CLUSTER_FULL`, `INVALID_REQUEST` for options out of range.
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

    /// Lets nobody in by a join token any more.
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

    /// All join tokens, ascending by name.
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

    /// What workers know the cluster by.
    async fn authorities(&self) -> Result<AuthoritiesHash, ClientError> {
        const NAME: &str = "read the cluster's authorities";
        let answer = self.call(self.operation(NAME), |channel| async move {
            let request = v1::GetAuthoritiesRequest {};
            joining(channel).get_authorities(request).await
        });
        let authorities = AuthoritiesHash::of(&answer.await?.authorities_pem);
        authorities.ok_or_else(|| ClientError::Malformed {
            operation: NAME,
            detail: "there is no certificate in it".to_owned(),
        })
    }
}
