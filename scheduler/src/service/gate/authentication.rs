//! Authentication of a caller by certificate or token.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use muster_engine::state::State;
use muster_model::access::TokenHash;
use muster_proto::status;
use muster_tls::{PeerRole, SecuredPeer, Token};
use tonic::{Code, Status};

use crate::service::gate::caller::Caller;
use crate::service::gate::federated::Federated;

/// Prefix of the header's value.
const SCHEME: &str = "Bearer ";

/// Authenticates the caller. A token takes precedence over a user's certificate: a caller that sends one
/// intends to be that user.
///
/// # Errors
/// UNAUTHENTICATED: `NO_CREDENTIAL`, `BAD_TOKEN`, `UNKNOWN_USER`.
pub(super) fn caller(
    state: &State,
    peer: &SecuredPeer,
    headers: &HeaderMap,
) -> Result<Caller, Status> {
    if headers.contains_key(AUTHORIZATION) {
        let text = bearer(headers).unwrap_or_default();
        return by_token(state, &Token::new(text));
    }
    match &peer.role {
        Some(PeerRole::Replica) => Ok(Caller::Replica),
        Some(PeerRole::Worker(name)) => Ok(Caller::Worker(name.clone())),
        Some(PeerRole::User(name)) if state.users.contains_key(name.as_str()) => {
            Ok(Caller::User(name.clone()))
        }
        Some(PeerRole::User(name)) => Err(refused(
            "UNKNOWN_USER",
            &format!(
                "user `{name}` of the certificate has no role here: ask an admin to add one (`muster user add {name}`)"
            ),
        )),
        None => Err(refused(
            "NO_CREDENTIAL",
            "authentication required: send a token (MUSTER_TOKEN, or `token` of the context) or a \
             certificate (MUSTER_CERT and MUSTER_KEY)",
        )),
    }
}

/// The bearer token of a call, if present and well-formed.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
    text.strip_prefix(SCHEME).map(str::trim)
}

/// Accepts a user authenticated by an identity provider. Names of the cluster's own users are refused:
/// otherwise anyone who can choose a name at the provider could become an admin here.
///
/// # Errors
/// UNAUTHENTICATED `USER_IS_LOCAL`.
pub(super) fn federated(state: &State, federated: Federated) -> Result<Caller, Status> {
    if !state.users.contains_key(federated.name.as_str()) {
        return Ok(Caller::Federated(federated));
    }
    Err(refused(
        "USER_IS_LOCAL",
        &format!(
            "user `{}` is a local user of this cluster: use its own token or certificate, or ask an admin \
             to remove it (`muster user remove`)",
            federated.name
        ),
    ))
}

/// The error does not reveal whether the name is unknown or the secret wrong.
fn by_token(state: &State, token: &Token) -> Result<Caller, Status> {
    let given = TokenHash(token.hash());
    let name = token.name().filter(|name| {
        let user = state.users.get(*name);
        let kept = user.and_then(|user| user.token);
        kept.is_some_and(|kept| kept.matches(&given))
    });
    name.map(|name| Caller::User(name.to_owned()))
        .ok_or_else(|| {
            refused(
                "BAD_TOKEN",
                "invalid or revoked user token; ask an admin for a new one (`muster user rotate`)",
            )
        })
}

fn refused(reason: &str, message: &str) -> Status {
    status::error(Code::Unauthenticated, reason, message, &[])
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use std::sync::Arc;

    use muster_model::access::{Role, User};
    use muster_proto::status::ErrorReport;

    use super::*;

    fn state(token: &Token) -> State {
        let mut state = State::default();
        let user = User {
            role: Role::User,
            queues: [].into(),
            token: Some(TokenHash(token.hash())),
        };
        state.users.insert(Arc::from("ada"), Arc::new(user));
        state
    }

    fn peer(role: Option<PeerRole>) -> SecuredPeer {
        SecuredPeer {
            address: None,
            role,
        }
    }

    fn bearer(text: &str) -> HeaderMap {
        [(AUTHORIZATION, text.parse().unwrap())]
            .into_iter()
            .collect()
    }

    #[test]
    fn certificates_and_tokens_authenticate_callers() {
        let token = Token::random("ada");
        let state = state(&token);
        let none = HeaderMap::new();
        let by = |role| caller(&state, &peer(role), &none).ok();
        assert_eq!(by(Some(PeerRole::Replica)), Some(Caller::Replica));
        let worker = "gpu-1".to_owned();
        assert_eq!(
            by(Some(PeerRole::Worker(worker.clone()))),
            Some(Caller::Worker(worker))
        );
        let ada = Caller::User("ada".to_owned());
        assert_eq!(
            by(Some(PeerRole::User("ada".to_owned()))),
            Some(ada.clone())
        );
        let sent = bearer(&format!("Bearer {}", token.text()));
        assert_eq!(caller(&state, &peer(None), &sent).ok(), Some(ada.clone()));
        // A caller with a token is that user and nothing more.
        assert_eq!(
            caller(&state, &peer(Some(PeerRole::Replica)), &sent).ok(),
            Some(ada)
        );
    }

    #[test]
    fn invalid_certificates_and_tokens_are_refused() {
        let token = Token::random("ada");
        let state = state(&token);
        let reason = |role, headers: &HeaderMap| {
            let refused = caller(&state, &peer(role), headers).unwrap_err();
            assert_eq!(refused.code(), Code::Unauthenticated);
            ErrorReport::of(&refused).reason
        };
        assert_eq!(reason(None, &HeaderMap::new()), "NO_CREDENTIAL");
        assert_eq!(
            reason(Some(PeerRole::User("eve".to_owned())), &HeaderMap::new()),
            "UNKNOWN_USER"
        );
        let others = [
            Token::random("ada").text().to_owned(),
            Token::random("eve").text().to_owned(),
            token.text().to_uppercase(),
            String::new(),
        ];
        for text in others {
            assert_eq!(
                reason(None, &bearer(&format!("Bearer {text}"))),
                "BAD_TOKEN"
            );
        }
        assert_eq!(
            reason(
                Some(PeerRole::Replica),
                &bearer(&format!("Basic {}", token.text()))
            ),
            "BAD_TOKEN"
        );
    }
}
