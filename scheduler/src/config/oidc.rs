//! Users authenticated by an external identity provider.

use std::path::PathBuf;

use muster_model::access::Role;
use muster_service::settings::BrokenRule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::require;

/// Identity provider (OpenID Connect) whose tokens are accepted; disabled without `issuer`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OidcSettings {
    /// Required issuer of a token (`iss`); enables the provider.
    pub issuer: Option<String>,
    /// Required audience of a token (`aud`).
    pub audience: Option<String>,
    /// The provider's keys (JWKS). The file is not fetched: an external process keeps it current, and it is
    /// reread when it changes.
    pub jwks_file: Option<PathBuf>,
    /// Claim with the user's name.
    pub user_claim: String,
    /// Claim with the list of the user's groups.
    pub groups_claim: String,
    /// Roles of groups: `[{ group = "ml", role = "user", queues = ["research"] }]`. A user in none of them is
    /// refused; of several roles the strongest applies, for the queues of all groups that grant it.
    pub groups: Vec<GroupRole>,
}

/// Role of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupRole {
    /// Name of the group in tokens.
    pub group: String,
    /// viewer, user, operator or admin.
    pub role: String,
    /// Queues that the role is limited to; only for viewers and users.
    #[serde(default)]
    pub queues: Vec<String>,
}

impl Default for OidcSettings {
    fn default() -> Self {
        Self {
            issuer: None,
            audience: None,
            jwks_file: None,
            user_claim: "sub".to_owned(),
            groups_claim: "groups".to_owned(),
            groups: Vec::new(),
        }
    }
}

impl OidcSettings {
    pub(super) fn validate(&self, has_tls: bool) -> Result<(), BrokenRule> {
        let given = [
            ("oidc.issuer", self.issuer.is_some()),
            ("oidc.audience", self.audience.is_some()),
            ("oidc.jwks_file", self.jwks_file.is_some()),
        ];
        if given.iter().all(|(_, is_given)| !is_given) {
            return Ok(());
        }
        for (field, is_given) in given {
            require(is_given, field, || {
                "must be set if issuer, audience or jwks_file is set".to_owned()
            })?;
        }
        require(has_tls, "oidc.issuer", || {
            "requires `tls`: without it callers are not authenticated".to_owned()
        })?;
        require(!self.groups.is_empty(), "oidc.groups", || {
            "must contain at least one group".to_owned()
        })?;
        self.groups.iter().try_for_each(GroupRole::validate)
    }
}

impl GroupRole {
    fn validate(&self) -> Result<(), BrokenRule> {
        let role = Role::named(&self.role);
        require(role.is_some(), "oidc.groups", || {
            let given = &self.role;
            format!("invalid role `{given}`: must be viewer, user, operator or admin")
        })?;
        let is_wide = role.is_some_and(|role| !role.is_restricted_to_queues());
        require(!is_wide || self.queues.is_empty(), "oidc.groups", || {
            let given = &self.role;
            format!("role `{given}` applies to the whole cluster: remove the queues")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(role: &str, queues: &[&str]) -> OidcSettings {
        OidcSettings {
            issuer: Some("https://idp.example".to_owned()),
            audience: Some("muster".to_owned()),
            jwks_file: Some("jwks.json".into()),
            groups: vec![GroupRole {
                group: "ml".to_owned(),
                role: role.to_owned(),
                queues: queues.iter().map(|queue| (*queue).to_owned()).collect(),
            }],
            ..OidcSettings::default()
        }
    }

    #[test]
    fn invalid_settings_are_named() {
        assert_eq!(OidcSettings::default().validate(false), Ok(()));
        assert_eq!(settings("user", &["research"]).validate(true), Ok(()));
        let broken = [
            (settings("user", &[]), false, "oidc.issuer"),
            (settings("king", &[]), true, "oidc.groups"),
            (settings("admin", &["research"]), true, "oidc.groups"),
            (
                OidcSettings {
                    audience: None,
                    ..settings("user", &[])
                },
                true,
                "oidc.audience",
            ),
            (
                OidcSettings {
                    groups: Vec::new(),
                    ..settings("user", &[])
                },
                true,
                "oidc.groups",
            ),
        ];
        for (settings, has_tls, key) in broken {
            let refused = settings.validate(has_tls);
            assert!(refused.is_err_and(|broken| broken.key == key), "{key}");
        }
    }
}
