//! Join tokens: admission of workers that have no certificate yet.

use serde::{Deserialize, Serialize};

use crate::access::TokenHash;
use crate::time::TimeMs;

/// Wildcard in a pattern: any number of characters, also none.
const ANY: char = '*';

/// Permissions of a join token, as requested by its creator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinGrant {
    /// Hash of the token; only the creator has the token itself.
    pub hash: TokenHash,
    /// Lifetime in milliseconds.
    pub ttl_ms: u64,
    /// Maximum number of workers that it admits.
    pub uses_max: u32,
    /// Pattern of admitted host names, in which `*` matches any characters; `None`: every host.
    pub host_pattern: Option<String>,
}

/// A join token as replicated, without the secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    /// Its permissions.
    pub grant: JoinGrant,
    /// User who issued the command.
    pub author: String,
    /// Creation time, by the log's time.
    pub created_at: TimeMs,
    /// Number of workers admitted so far.
    pub uses: u32,
}

impl JoinToken {
    /// Time of expiry, by the log's time.
    #[must_use]
    pub const fn expires_at(&self) -> TimeMs {
        TimeMs(self.created_at.0.saturating_add(self.grant.ttl_ms))
    }

    /// Number of workers that it may still admit.
    #[must_use]
    pub const fn uses_left(&self) -> u32 {
        self.grant.uses_max.saturating_sub(self.uses)
    }

    /// Why it admits no worker any more; `None` while it is valid.
    #[must_use]
    pub fn invalid_reason(&self, now: TimeMs) -> Option<String> {
        if now >= self.expires_at() {
            let seconds = now.since(self.expires_at()) / 1_000;
            return Some(format!("expired {seconds} s ago"));
        }
        let max = self.grant.uses_max;
        (self.uses_left() == 0).then(|| format!("has admitted its maximum of {max} workers"))
    }

    /// Whether it admits a host of this name.
    #[must_use]
    pub fn is_for(&self, host: &str) -> bool {
        let pattern = self.grant.host_pattern.as_deref();
        pattern.is_none_or(|pattern| fits(pattern, host))
    }
}

/// Whether a name matches a pattern.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once(ANY) else {
        return pattern == name;
    };
    let Some(mut name) = name.strip_prefix(head) else {
        return false;
    };
    let (middle, tail) = rest.rsplit_once(ANY).unwrap_or(("", rest));
    // The leftmost match leaves the most for the remaining pieces.
    for piece in middle.split(ANY) {
        let Some(at) = name.find(piece) else {
            return false;
        };
        name = &name[at + piece.len()..];
    }
    name.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(ttl_ms: u64, uses_max: u32, host_pattern: Option<&str>) -> JoinToken {
        JoinToken {
            grant: JoinGrant {
                hash: TokenHash([7; 32]),
                ttl_ms,
                uses_max,
                host_pattern: host_pattern.map(str::to_owned),
            },
            author: "grace".to_owned(),
            created_at: TimeMs(1_000),
            uses: 0,
        }
    }

    #[test]
    fn a_pattern_matches_host_names() {
        let fitting = [
            ("gpu-1", "gpu-1"),
            ("*", "anything"),
            ("gpu-*", "gpu-"),
            ("gpu-*", "gpu-17.lab"),
            ("*.lab", "gpu-17.lab"),
            ("gpu-*.lab", "gpu-17.lab"),
            ("*-*-*", "a-b-c-d"),
            ("a*b*b", "abb"),
            ("**", ""),
        ];
        for (pattern, name) in fitting {
            assert!(fits(pattern, name), "{pattern} for {name}");
        }
        let strange = [
            ("gpu-1", "gpu-10"),
            ("gpu-*", "cpu-1"),
            ("gpu-*.lab", "gpu-17.lab.evil"),
            ("a*b*b", "ab"),
            ("a*a", "a"),
            ("", "a"),
        ];
        for (pattern, name) in strange {
            assert!(!fits(pattern, name), "{pattern} for {name}");
        }
        assert!(token(1, 1, None).is_for("anything"));
    }

    #[test]
    fn a_join_token_is_limited_in_time_and_uses() {
        let mut token = token(5_000, 2, None);
        assert_eq!(token.expires_at(), TimeMs(6_000));
        assert_eq!(token.invalid_reason(TimeMs(5_999)), None);
        let reason = token.invalid_reason(TimeMs(8_500)).unwrap_or_default();
        assert_eq!(reason, "expired 2 s ago");
        token.uses = 2;
        assert_eq!(token.uses_left(), 0);
        let used_up = token.invalid_reason(TimeMs(1_000)).unwrap_or_default();
        assert!(used_up.contains("2 workers"), "{used_up}");
    }
}
