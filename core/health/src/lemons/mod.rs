//! Lemon detection: hosts that fail more often than others without reporting a fault.
//!
//! Always a rate relative to the fleet, because busy hosts see more failing jobs. Integer arithmetic
//! throughout, so that every replica finds the same hosts.

mod binomial;
mod counts;

use muster_model::named_enum;

pub use self::binomial::{ONE, Rate, at_least};
pub use self::counts::{Counts, HostRecord};

/// Default score in thousandths from which on a host is a lemon, if no rule sets another one.
pub const LEMON_MILLI: u32 = 3_000;
/// Minimum number of starts for a rate.
pub const STARTS_MIN: u32 = 20;
/// A rate of this many times the fleet's stands out.
const TIMES_FLEET: u64 = 3;
/// Probability, in fractions of [`ONE`], below which a rate is unlikely: 1 %.
const UNLIKELY: u64 = ONE / 100;
/// Probability below which it is proof: 0.02 %. Our value, computed: of hosts that fail 0.2 to 2 % of their
/// tasks, and are evaluated after each one, this accuses one in 1,000 over 400 starts, where 0.1 % accuses
/// one in 250; one that fails a quarter is found within 40 starts 96 to 99.9 times in 100.
const PROOF: u64 = ONE / 5_000;
/// Failures and starts added to the fleet's, so that a small or new one has a rate: one in fifty.
const PRIOR: (u64, u64) = (1, 50);

named_enum! {
    /// Evidence against a host.
    Feature {
        /// Infrastructure failures of tasks that ran on it alone.
        SingleFailures = "single_host_failures",
        /// Share of failures of gangs for no known reason.
        SharedFailures = "shared_failures",
        /// Tasks fail on it more often than elsewhere.
        Rate = "failure_rate",
        /// It raises several distinct XIDs.
        Codes = "xid_codes",
        /// It was blocked or repaired repeatedly.
        Blocks = "blocks",
        /// Users exclude it.
        Excludes = "excluded_by_users",
    }
}

/// Statistics of all hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// Starts on all hosts.
    pub starts: u64,
    /// Failures on all hosts.
    pub failures: u64,
    /// Median of the failures per million starts, over hosts with enough starts.
    pub median_ppm: u64,
}

impl Fleet {
    /// Sums up hosts.
    #[must_use]
    pub fn of<'a>(hosts: impl Iterator<Item = &'a Counts>) -> Self {
        let mut fleet = Self::default();
        let mut rates = Vec::new();
        for host in hosts {
            fleet.starts += u64::from(host.starts);
            fleet.failures += u64::from(host.failures);
            if host.starts >= STARTS_MIN {
                rates.push(u64::from(host.failures) * 1_000_000 / u64::from(host.starts));
            }
        }
        rates.sort_unstable();
        fleet.median_ppm = rates.get(rates.len() / 2).copied().unwrap_or_default();
        fleet
    }

    /// The rate of all other hosts.
    fn without(self, host: &Counts) -> Rate {
        let failures = self.failures.saturating_sub(u64::from(host.failures)) + PRIOR.0;
        let starts = self.starts.saturating_sub(u64::from(host.starts)) + PRIOR.1;
        Rate::new(failures, starts)
    }
}

/// Score of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// The sum, in thousandths.
    pub milli: u32,
    /// Its components, in thousandths.
    pub features: Vec<(Feature, u32)>,
}

impl Score {
    /// Whether it must be drained and checked: at this number of thousandths or more.
    #[must_use]
    pub const fn is_lemon(&self, least_milli: u32) -> bool {
        self.milli >= least_milli
    }

    /// The sum without one of its components, in thousandths.
    #[must_use]
    pub fn without(&self, feature: Feature) -> u32 {
        let part = self.features.iter().find(|(of, _)| *of == feature);
        self.milli
            .saturating_sub(part.map_or(0, |(_, milli)| *milli))
    }
}

/// Scores a host relative to the fleet.
#[must_use]
pub fn score(host: &Counts, fleet: Fleet) -> Score {
    let each = |count_milli: u32, least_milli: u32, weight: u32| {
        let counts = count_milli >= least_milli;
        if counts {
            count_milli / 1_000 * weight + count_milli % 1_000 * weight / 1_000
        } else {
            0
        }
    };
    let excludes = (host.excludes.saturating_mul(100)).min(500);
    let features = [
        (
            Feature::SingleFailures,
            each(host.single_milli, 2_000, 1_000),
        ),
        (
            Feature::SharedFailures,
            each(host.shared_milli, 1_500, 1_000),
        ),
        (Feature::Rate, rate_milli(host, fleet)),
        (
            Feature::Codes,
            each(host.codes.saturating_mul(1_000), 3_000, 500),
        ),
        (Feature::Blocks, each(host.blocks_milli, 3_000, 1_000)),
        (Feature::Excludes, excludes),
    ];
    let speaking = features.into_iter().filter(|(_, milli)| *milli > 0);
    let mut score = Score {
        milli: 0,
        features: speaking.collect(),
    };
    let sum = |of: &dyn Fn(Feature) -> bool| -> u32 {
        let counted = score.features.iter().filter(|(feature, _)| of(*feature));
        counted
            .map(|(_, milli)| *milli)
            .fold(0, u32::saturating_add)
    };
    let evidence = sum(&|feature| feature != Feature::Excludes);
    // Exclusion by users is never sufficient.
    score.milli = if evidence == 0 {
        0
    } else {
        evidence + excludes
    };
    score
}

/// Score of a host's rate: 2 if it is unlikely, 3 if it is proof.
fn rate_milli(host: &Counts, fleet: Fleet) -> u32 {
    let Counts {
        starts, failures, ..
    } = *host;
    if starts < STARTS_MIN {
        return 0;
    }
    let others = fleet.without(host);
    let usual_ppm = others.ppm().max(fleet.median_ppm);
    let own_ppm = u64::from(failures) * 1_000_000 / u64::from(starts);
    if own_ppm <= TIMES_FLEET * usual_ppm {
        return 0;
    }
    match at_least(starts, failures, others) {
        0..PROOF => 3_000,
        PROOF..UNLIKELY => 2_000,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
