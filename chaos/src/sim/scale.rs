//! Size and pace of a simulated cluster.

use std::ops::Range;
use std::time::Duration;

use muster_model::timings::Timings;
use serde::{Deserialize, Serialize};

/// Hosts per user of a cluster with a given size, with at least one and at most [`USERS_MAX`] users.
const HOSTS_PER_USER: u32 = 10;
const USERS_MAX: u32 = 20;

/// Given size and pace of a world; the rest is drawn from its seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// Number of hosts, of eight GPUs each; `None` draws two to seven of different sizes.
    pub hosts: Option<u32>,
    /// Pace of the world.
    pub tempo: Tempo,
}

impl Scale {
    /// Number of users of a cluster with `hosts` hosts.
    #[must_use]
    pub fn users(hosts: u32) -> u32 {
        (hosts / HOSTS_PER_USER).clamp(1, USERS_MAX)
    }
}

/// Pace of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tempo {
    /// Hurried: heartbeats of half a second, jobs of seconds, a fault every two seconds. Many situations in
    /// a short run.
    #[default]
    Hurried,
    /// As in production: the default heartbeat and lease timings, jobs of minutes to hours as in
    /// Microsoft's Philly cluster, a fault a minute.
    Production,
}

impl Tempo {
    /// Every tempo.
    pub const ALL: [Self; 2] = [Self::Hurried, Self::Production];

    /// Name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hurried => "hurried",
            Self::Production => "production",
        }
    }

    /// Parses a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tempo| tempo.name() == name)
    }

    /// Heartbeat and lease timings.
    #[must_use]
    pub fn timings(self) -> Timings {
        match self {
            Self::Hurried => Timings {
                heartbeat_ms: 500,
                suspect_ms: 1_500,
                lost_ms: 4_500,
            },
            Self::Production => Timings::default(),
        }
    }

    /// Leases of the jobs, in milliseconds.
    #[must_use]
    pub const fn partition_grace_ms(self) -> u64 {
        match self {
            Self::Hurried => 6_000,
            Self::Production => 60_000,
        }
    }

    /// Pause before each fault or repair, in milliseconds.
    #[must_use]
    pub const fn fault_pause_ms(self) -> Range<u64> {
        match self {
            Self::Hurried => 200..4_000,
            Self::Production => 5_000..115_000,
        }
    }

    /// Pause of a user after a job, in milliseconds.
    #[must_use]
    pub const fn job_pause_ms(self) -> Range<u64> {
        match self {
            Self::Hurried => 50..3_000,
            Self::Production => 1_000..299_000,
        }
    }

    /// Average seconds between two submissions of a user.
    #[must_use]
    pub const fn job_every_s(self) -> u64 {
        match self {
            Self::Hurried => 4,
            Self::Production => 150,
        }
    }

    /// Maximum run time of a job, in milliseconds: Philly's distribution has no upper bound.
    #[must_use]
    pub const fn run_ms_max(self) -> u64 {
        match self {
            Self::Hurried => 15_000,
            Self::Production => 2 * 3_600_000,
        }
    }

    /// Time limits of jobs relative to those in a hurried world.
    #[must_use]
    pub const fn limit_factor(self) -> u64 {
        match self {
            Self::Hurried => 1,
            Self::Production => 600,
        }
    }

    /// Share of the worlds with machines for more replicas; the same share has bad links, hosts that lose
    /// their accounts, and a hostile user. There are few worlds at production pace, so each has all of
    /// them.
    #[must_use]
    pub const fn rare_share(self) -> f64 {
        match self {
            Self::Hurried => 0.25,
            Self::Production => 1.0,
        }
    }

    /// Interval between checks in the quiet phase whether all jobs have ended.
    #[must_use]
    pub const fn quiet_look(self) -> Duration {
        match self {
            Self::Hurried => Duration::from_millis(500),
            Self::Production => Duration::from_secs(15),
        }
    }

    /// Maximum time in the quiet phase until one more job has ended: leases, back-offs and run times.
    #[must_use]
    pub const fn quiet_max(self) -> Duration {
        match self {
            Self::Hurried => Duration::from_secs(600),
            Self::Production => Duration::from_hours(48),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_again_and_users_are_few() {
        for tempo in Tempo::ALL {
            assert_eq!(Tempo::named(tempo.name()), Some(tempo));
        }
        assert_eq!(Tempo::named("slow"), None);
        assert_eq!([1, 40, 900].map(Scale::users), [1, 4, USERS_MAX]);
    }
}
