//! Users and their roles.

use muster_model::access::Role;
use muster_model::ids::Revision;
use muster_proto::v1;
use muster_tls::Token;

use crate::client::{Client, admin, new_request_id};
use crate::error::ClientError;

impl Client {
    /// Grants a role to a user, and creates the token with which the user authenticates. The cluster stores
    /// only its hash.
    ///
    /// `queues` restricts the role of viewers and users to these queues.
    ///
    /// # Errors
    /// Those of a call; `USER_EXISTS`, `UNKNOWN_QUEUE`, `INVALID_REQUEST` for an invalid name and for
    /// queues of a stronger role.
    pub async fn add_user(
        &self,
        author: &str,
        name: &str,
        role: Role,
        queues: Vec<String>,
    ) -> Result<(Token, Revision), ClientError> {
        let token = Token::random(name);
        let request = v1::AddUserRequest {
            request_id: new_request_id(),
            author: author.to_owned(),
            name: name.to_owned(),
            role: v1::UserRole::from(role).into(),
            queues,
            token_hash: Some(token.hash().to_vec().into()),
        };
        let operation = self.operation("add the user");
        let answer = self.call(operation, |channel| {
            let request = request.clone();
            async move { admin(channel).add_user(request).await }
        });
        let revision = Revision(answer.await?.revision);
        Ok((token, revision))
    }

    /// Removes a user's role. The user's jobs continue.
    ///
    /// # Errors
    /// Those of a call; `UNKNOWN_USER`.
    pub async fn remove_user(&self, author: &str, name: &str) -> Result<Revision, ClientError> {
        let request = v1::RemoveUserRequest {
            request_id: new_request_id(),
            author: author.to_owned(),
            name: name.to_owned(),
        };
        let operation = self.operation("remove the user");
        let answer = self.call(operation, |channel| {
            let request = request.clone();
            async move { admin(channel).remove_user(request).await }
        });
        Ok(Revision(answer.await?.revision))
    }

    /// Creates another token for a user; the previous one is invalid from then on.
    ///
    /// # Errors
    /// Those of a call; `UNKNOWN_USER`.
    pub async fn rotate_user_token(
        &self,
        author: &str,
        name: &str,
    ) -> Result<(Token, Revision), ClientError> {
        let token = Token::random(name);
        let request = v1::RotateUserTokenRequest {
            request_id: new_request_id(),
            author: author.to_owned(),
            name: name.to_owned(),
            token_hash: token.hash().to_vec().into(),
        };
        let operation = self.operation("change the user's token");
        let answer = self.call(operation, |channel| {
            let request = request.clone();
            async move { admin(channel).rotate_user_token(request).await }
        });
        let revision = Revision(answer.await?.revision);
        Ok((token, revision))
    }

    /// Lists all users, ascending by name.
    ///
    /// # Errors
    /// Those of a call.
    pub async fn list_users(
        &self,
        consistency: v1::Consistency,
    ) -> Result<v1::ListUsersResponse, ClientError> {
        let request = v1::ListUsersRequest {
            consistency: consistency.into(),
        };
        let operation = self.operation("list the users");
        self.call(operation, |channel| async move {
            admin(channel).list_users(request).await
        })
        .await
    }
}
