//! Fair shares: dominant-resource shares of queues and users, which decide whose job is next.

use std::cmp::Ordering;

use muster_engine::state::Totals;
use muster_model::quota::{Amounts, Guarantee, QueueConfig};

/// Amounts are capped at this value when compared: products of three such values stay exact.
const AMOUNT_MAX: u64 = 1 << 44;
/// Thousandths of a GPU.
const MILLI: u64 = 1_000;

/// A fraction, compared exactly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratio {
    part: u64,
    /// At least 1.
    whole: u64,
}

impl Ratio {
    const ZERO: Self = Self { part: 0, whole: 1 };

    /// `part` of `whole`; infinite if `whole` is 0.
    fn new(part: u64, whole: u64) -> Self {
        match (part, whole) {
            (0, _) => Self::ZERO,
            (_, 0) => Self {
                part: AMOUNT_MAX,
                whole: 1,
            },
            _ => Self {
                part: part.min(AMOUNT_MAX),
                whole: whole.min(AMOUNT_MAX),
            },
        }
    }

    /// The ratio divided by a weight.
    fn over(self, weight: u32) -> Self {
        let weight = u64::from(weight.max(1));
        Self {
            part: self.part,
            whole: self.whole.saturating_mul(weight),
        }
    }

    /// Whether it is less than 1.
    const fn is_part(self) -> bool {
        self.part < self.whole
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        let ours = u128::from(self.part) * u128::from(other.whole);
        let theirs = u128::from(other.part) * u128::from(self.whole);
        ours.cmp(&theirs)
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ratio {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ratio {}

/// Share of a node: among siblings the smallest is served next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Share {
    /// Below its guarantee in every guaranteed resource: the largest used fraction.
    Guaranteed(Ratio),
    /// Above its guarantee: the largest fraction of any of the cluster's resources, divided by its weight.
    Borrowing(Ratio),
}

/// Amounts of a queue or user that count in its share.
#[derive(Clone, Debug, Default)]
pub(super) struct Holding {
    /// All amounts.
    pub(super) all: Amounts,
    /// Amounts without those held opportunistically, which use up no guarantee.
    pub(super) firm: Amounts,
    /// Decayed past use in thousandths of a GPU; 0 where only present use counts.
    pub(super) past_gpus_milli: u64,
}

impl Holding {
    pub(super) fn add(&mut self, amounts: &Amounts, opportunistic: bool) {
        self.all.add(amounts);
        if !opportunistic {
            self.firm.add(amounts);
        }
    }
}

impl Share {
    /// The share of a queue.
    pub(super) fn of_queue(
        holding: &Holding,
        config: &QueueConfig,
        guarantee: &Amounts,
        totals: &Totals,
    ) -> Self {
        match against_guarantee(&holding.firm, guarantee) {
            Some(ratio) if ratio.is_part() => Self::Guaranteed(ratio),
            _ => Self::Borrowing(dominant(holding, totals).over(config.weight)),
        }
    }

    /// The share of a user in a queue.
    pub(super) fn of_user(holding: &Holding, totals: &Totals) -> Self {
        Self::Borrowing(dominant(holding, totals))
    }
}

/// The largest used fraction of a guarantee; `None` if nothing is guaranteed.
fn against_guarantee(used: &Amounts, guarantee: &Amounts) -> Option<Ratio> {
    let by_model = guarantee.gpus_by_model.iter().map(|(model, guaranteed)| {
        let used = used.gpus_by_model.get(model).copied().unwrap_or(0);
        (used, *guaranteed)
    });
    let kinds = [
        (used.gpus, guarantee.gpus),
        (used.cpus_milli, guarantee.cpus_milli),
        (used.memory_mib, guarantee.memory_mib),
    ];
    by_model
        .chain(kinds)
        .filter(|(_, guaranteed)| *guaranteed > 0)
        .map(|(used, guaranteed)| Ratio::new(used, guaranteed))
        .max()
}

/// The largest fraction of any of the cluster's resources; for GPUs, past use is added to what is held.
fn dominant(holding: &Holding, totals: &Totals) -> Ratio {
    let used = &holding.all;
    let gpus_milli = used.gpus.saturating_mul(MILLI);
    let kinds = [
        Ratio::new(
            gpus_milli.saturating_add(holding.past_gpus_milli),
            totals.gpus.saturating_mul(MILLI),
        ),
        Ratio::new(used.cpus_milli, totals.cpus_milli),
        Ratio::new(used.memory_mib, totals.memory_mib),
    ];
    kinds.into_iter().max().unwrap_or(Ratio::ZERO)
}

/// A guarantee as amounts: cells count as their GPUs.
pub(super) fn guaranteed(guarantee: &Guarantee) -> Amounts {
    match guarantee {
        Guarantee::Amounts(amounts) => amounts.clone(),
        Guarantee::Cells(quotas) => {
            let mut amounts = Amounts::default();
            for quota in quotas {
                let cells = u64::from(quota.count) + quota.pinned.len() as u64;
                let gpus = u64::from(quota.gpus) * cells;
                amounts.gpus += gpus;
                let of_model = amounts.gpus_by_model.entry(quota.gpu_model.clone());
                *of_model.or_default() += gpus;
            }
            amounts
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTALS: Totals = Totals {
        gpus: 100,
        cpus_milli: 1_000,
        memory_mib: 1_000,
    };

    fn holding(gpus: u64, cpus_milli: u64) -> Holding {
        let mut holding = Holding::default();
        let amounts = Amounts {
            gpus,
            cpus_milli,
            ..Amounts::default()
        };
        holding.add(&amounts, false);
        holding
    }

    fn share(holding: &Holding, weight: u32, guaranteed_gpus: u64) -> Share {
        let config = QueueConfig {
            weight,
            ..QueueConfig::default()
        };
        let guarantee = Amounts {
            gpus: guaranteed_gpus,
            ..Amounts::default()
        };
        Share::of_queue(holding, &config, &guarantee, &TOTALS)
    }

    #[test]
    fn queues_under_their_guarantee_go_first() {
        let under = share(&holding(49, 0), 1, 50);
        let idle_without_guarantee = share(&holding(0, 0), 1, 0);
        let at_guarantee = share(&holding(50, 0), 1, 50);
        assert!(under < idle_without_guarantee);
        assert!(idle_without_guarantee < at_guarantee);
    }

    #[test]
    fn past_usage_counts_in_addition_to_held_resources() {
        let greedy = Holding {
            past_gpus_milli: 20_000,
            ..holding(10, 0)
        };
        assert!(share(&greedy, 1, 0) > share(&holding(29, 0), 1, 0));
        assert_eq!(share(&greedy, 1, 0), share(&holding(30, 0), 1, 0));
        assert_eq!(share(&greedy, 1, 50), share(&holding(10, 0), 1, 50));
    }

    #[test]
    fn the_dominant_resource_counts_over_the_weight() {
        assert!(share(&holding(10, 500), 1, 0) > share(&holding(40, 0), 1, 0));
        assert!(share(&holding(40, 0), 3, 0) < share(&holding(20, 0), 1, 0));
        assert_eq!(share(&holding(40, 0), 2, 0), share(&holding(20, 0), 1, 0));
    }
}
