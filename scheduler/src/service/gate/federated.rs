//! Users authenticated by an external identity provider.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_model::access::{Role, User};
use muster_model::limits::NAME_BYTES_MAX;
use muster_proto::status;
use muster_tls::jwt::{Identity, Jwks, JwksError, RequiredClaims};
use tonic::{Code, Status};

use crate::config::{GroupRole, OidcSettings};

/// An identity provider whose tokens are accepted.
#[derive(Debug)]
pub(crate) struct Provider {
    jwks: Jwks,
    expected: RequiredClaims,
    groups: Vec<GroupRole>,
}

/// A user authenticated by a provider's token, with the rights of its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Federated {
    /// The user's name.
    pub(super) name: String,
    /// Rights of the user.
    pub(super) user: Arc<User>,
    /// Expiry of the token, in milliseconds since the Unix epoch.
    pub(super) until_ms: u64,
}

impl Provider {
    /// Opens the configured provider; `None` if there is none. Its keys are kept current.
    ///
    /// # Errors
    /// A defect of the key file.
    pub(crate) fn open(settings: &OidcSettings) -> Result<Option<Self>, JwksError> {
        let named = (&settings.issuer, &settings.audience, &settings.jwks_file);
        let (Some(issuer), Some(audience), Some(path)) = named else {
            return Ok(None);
        };
        let jwks = Jwks::open(path)?;
        jwks.keep_current();
        Ok(Some(Self {
            jwks,
            expected: RequiredClaims {
                issuer: issuer.clone(),
                audience: audience.clone(),
                user_claim: settings.user_claim.clone(),
                groups_claim: settings.groups_claim.clone(),
            },
            groups: settings.groups.clone(),
        }))
    }

    /// Verifies a token and returns its user.
    ///
    /// # Errors
    /// UNAUTHENTICATED `BAD_TOKEN`, with the defect; `UNKNOWN_USER` if no group of the user has a role.
    pub(super) fn prove(&self, text: &str, now_ms: u64) -> Result<Federated, Status> {
        let refused =
            |reason, message: String| status::error(Code::Unauthenticated, reason, &message, &[]);
        let proven = self
            .jwks
            .check(text, &self.expected, now_ms)
            .map_err(|error| refused("BAD_TOKEN", format!("the token {error}")))?;
        if proven.user.len() > NAME_BYTES_MAX {
            let limit = format!("{NAME_BYTES_MAX} bytes (NAME_BYTES_MAX)");
            return Err(refused(
                "BAD_TOKEN",
                format!("the token's user has a name of more than {limit}"),
            ));
        }
        let user = rights(&self.groups, &proven).ok_or_else(|| {
            let message = format!(
                "no group of user `{}` has a role here: ask an admin to add one to `oidc.groups`",
                proven.user
            );
            refused("UNKNOWN_USER", message)
        })?;
        Ok(Federated {
            name: proven.user,
            user: Arc::new(user),
            until_ms: proven.until_ms,
        })
    }
}

/// The strongest role of a user's groups, for the queues of all groups that grant it; for all queues if one
/// of them is unrestricted.
fn rights(groups: &[GroupRole], proven: &Identity) -> Option<User> {
    let own = || groups.iter().filter(|it| proven.groups.contains(&it.group));
    let role = own().filter_map(|it| Role::named(&it.role)).max()?;
    let mut queues = BTreeSet::new();
    for given in own().filter(|it| it.role == role.name()) {
        if given.queues.is_empty() {
            queues.clear();
            break;
        }
        queues.extend(given.queues.iter().cloned());
    }
    Some(User {
        role,
        queues,
        token: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_role_counts_for_the_queues_of_all_that_give_it() {
        let group = |group: &str, role: &str, queues: &[&str]| GroupRole {
            group: group.to_owned(),
            role: role.to_owned(),
            queues: queues.iter().map(|queue| (*queue).to_owned()).collect(),
        };
        let groups = [
            group("all", "viewer", &[]),
            group("vision", "user", &["research/vision"]),
            group("speech", "user", &["research/speech"]),
            group("staff", "user", &[]),
            group("ops", "operator", &[]),
        ];
        let of = |names: &[&str]| {
            let proven = Identity {
                user: "ada".to_owned(),
                groups: names.iter().map(|name| (*name).to_owned()).collect(),
                until_ms: 0,
            };
            let user = rights(&groups, &proven)?;
            let queues: Vec<String> = user.queues.into_iter().collect();
            Some((user.role, queues.join(",")))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["others"]), None);
        assert_eq!(of(&["all"]), Some((Role::Viewer, String::new())));
        let both = "research/speech,research/vision".to_owned();
        assert_eq!(of(&["all", "vision", "speech"]), Some((Role::User, both)));
        assert_eq!(of(&["vision", "staff"]), Some((Role::User, String::new())));
        assert_eq!(
            of(&["ops", "vision"]),
            Some((Role::Operator, String::new()))
        );
    }
}
