//! Lemons: hosts that fail more often than others without ever saying that they are broken.
//!
//! Always a rate against the fleet, because busy hosts meet more failing jobs. Whole numbers throughout, so that every
//! replica finds the same ones.

mod binomial;
mod counts;

use muster_model::word_enum;

pub use self::binomial::{ONE, Rate, at_least};
pub use self::counts::{Counts, HostRecord};

/// Score in thousandths from which on a host is a lemon, where no rule says another one.
pub const LEMON_MILLI: u32 = 3_000;
/// Starts without which a rate says nothing.
pub const STARTS_MIN: u32 = 20;
/// A rate of so many times the fleet's stands out.
const TIMES_FLEET: u64 = 3;
/// Chance, in fractions of [`ONE`], below which a rate is unlikely: 1 %.
const UNLIKELY: u64 = ONE / 100;
/// And below which it is proof: 0.02 %. Ours, computed: of hosts that fail 0.2 to 2 % of their tasks, and are looked at after
/// each one, this accuses one in 1,000 over 400 starts, where 0.1 % accuses one in 250; one that fails a quarter is found
/// within 40 starts 96 to 99.9 times in 100.
const PROOF: u64 = ONE / 5_000;
/// Failures and starts that are added to the fleet's, so that a small or new one has a rate: one in fifty.
const PRIOR: (u64, u64) = (1, 50);

word_enum! {
    /// What speaks against a host.
    Feature {
        /// The infrastructure ended tasks that ran on it alone.
        SingleFailures = "single_host_failures",
        /// It was among the hosts of gangs that failed for no known reason.
        SharedFailures = "shared_failures",
        /// Tasks fail on it more often than elsewhere.
        Rate = "failure_rate",
        /// It raises XIDs of several kinds.
        Codes = "xid_codes",
        /// It was blocked or repaired again and again.
        Blocks = "blocks",
        /// Users exclude it.
        Excludes = "excluded_by_users",
    }
}

/// What all hosts are like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// Starts of all hosts.
    pub starts: u64,
    /// Failures of all hosts.
    pub failures: u64,
    /// Failures in a million starts of the host in the middle, of those with enough starts.
    pub median_ppm: u64,
}

impl Fleet {
    /// Sums hosts up.
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

    /// The rate of all others.
    fn without(self, host: &Counts) -> Rate {
        let failures = self.failures.saturating_sub(u64::from(host.failures)) + PRIOR.0;
        let starts = self.starts.saturating_sub(u64::from(host.starts)) + PRIOR.1;
        Rate::new(failures, starts)
    }
}

/// What speaks against a host, and how much.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// The sum, in thousandths.
    pub milli: u32,
    /// What it is made of, in thousandths.
    pub features: Vec<(Feature, u32)>,
}

impl Score {
    /// Whether it is to be drained and checked: from so many thousandths on.
    #[must_use]
    pub const fn is_lemon(&self, least_milli: u32) -> bool {
        self.milli >= least_milli
    }

    /// What is left of the sum without one of its parts, in thousandths.
    #[must_use]
    pub fn without(&self, feature: Feature) -> u32 {
        let part = self.features.iter().find(|(of, _)| *of == feature);
        self.milli
            .saturating_sub(part.map_or(0, |(_, milli)| *milli))
    }
}

/// Weighs what is known of a host against the fleet.
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
    // What users say of a host never decides alone.
    score.milli = if evidence == 0 {
        0
    } else {
        evidence + excludes
    };
    score
}

/// What a host's rate says: 2 where it is unlikely, 3 where it is proof.
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
