//! Users and their roles.

use muster_model::access::Role;
use muster_model::ids::Revision;
use muster_proto::v1;
use muster_tls::Token;

use crate::client::{Client, admin, new_request_id};
use crate::error::ClientError;

impl Client {
    /// Gives somebody a role, and makes the token by which the user proves who it is. The cluster keeps nothing but its hash.
    ///
    /// `queues` are those that the role counts for, for viewers and users.
    ///
    /// # Errors
    /// Those of a call; `USER_EXISTS`, `UNKNOWN_QUEUE`, `INVALID_REQUEST` for a bad name and queues of a stronger role.
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

    /// Takes a user's role away. What the user's jobs do goes on.
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

    /// Makes another token for a user; the one before counts no more.
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

    /// All users, ascending by name.
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
