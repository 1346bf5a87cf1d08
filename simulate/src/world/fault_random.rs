//! Random effects of simulated faults: when a task dies from an intermittent fault, and whether a check finds
//! a fault without a sign.
//!
//! Each number is drawn only from its subject: the same attempt of the same job gets the same result, and
//! the third check of a fault finds the same, regardless of earlier events. A number that every change of
//! the run shifts (a revision, a millisecond) would redraw everything at each change, and the effect of the
//! new draws would be mistaken for the effect of the change.

use std::collections::BTreeMap;

use crate::fault::hash;

/// Percentage of checks that find a fault without a sign (ByteDance: synthetic checks miss over 60).
const CHECK_DETECTION_PERCENT: u64 = 40;

/// Subject of a draw.
#[derive(Clone, Copy, Debug)]
enum Question {
    Death = 1,
    Check = 2,
}

/// The random source of one run.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultRandom {
    salt: u64,
    /// The last check of each fault, and its number of checks.
    checks: BTreeMap<usize, (usize, u64)>,
}

impl FaultRandom {
    pub(super) const fn new(salt: u64) -> Self {
        Self {
            salt,
            checks: BTreeMap::new(),
        }
    }

    fn draw(&self, question: Question, subject: &[u64]) -> u64 {
        let mut all = vec![self.salt, question as u64];
        all.extend_from_slice(subject);
        hash(&all)
    }

    /// Time that an attempt of a job, the first being 1, survives a fault: between 0 and twice the mean.
    pub(super) fn dies_after_ms(
        &self,
        fault: usize,
        job: usize,
        attempt: u32,
        mean_ms: u64,
    ) -> u64 {
        let subject = [fault as u64, job as u64, u64::from(attempt)];
        self.draw(Question::Death, &subject) % (2 * mean_ms)
    }

    /// Whether a check finds a fault. Checks count from the first one of a fault; the result of a repeated
    /// query stays the same.
    pub(super) fn check_finds(&mut self, fault: usize, check: usize) -> bool {
        let (last, count) = self.checks.entry(fault).or_insert((check, 1));
        if *last != check {
            (*last, *count) = (check, *count + 1);
        }
        let count = *count;
        self.draw(Question::Check, &[fault as u64, count]) % 100 < CHECK_DETECTION_PERCENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;

    #[test]
    fn draws_depend_on_their_subject_and_not_on_the_time() {
        let (mut early, mut late) = (FaultRandom::new(7), FaultRandom::new(7));
        let finds = |random: &mut FaultRandom, checks: &[usize]| {
            let finds = checks.iter().map(|check| random.check_finds(3, *check));
            finds.collect::<Vec<bool>>()
        };
        // Positions among all ordered checks differ between runs; the ordinal number of a fault's check
        // does not.
        let first = finds(&mut early, &[1, 2, 3, 4, 5, 6, 7, 8]);
        let other = finds(&mut late, &[10, 20, 30, 40, 50, 60, 70, 80]);
        assert_eq!(first, other);
        assert!(first.contains(&true) && first.contains(&false));
        let death = early.dies_after_ms(3, 11, 2, HOUR_MS);
        assert_eq!(death, late.dies_after_ms(3, 11, 2, HOUR_MS));
        assert!(death < 2 * HOUR_MS);
    }

    #[test]
    fn a_repeated_query_of_a_check_gives_the_same_result() {
        let mut random = FaultRandom::new(0);
        for check in 0..50 {
            let found = random.check_finds(5, check);
            assert_eq!(random.check_finds(5, check), found, "{check}");
        }
    }

    #[test]
    fn another_salt_gives_other_failure_times() {
        let failure_times = |salt: u64| {
            let random = FaultRandom::new(salt);
            (0..20)
                .map(|attempt| random.dies_after_ms(1, 2, attempt, HOUR_MS))
                .collect::<Vec<u64>>()
        };
        assert_ne!(failure_times(0), failure_times(1));
    }

    #[test]
    fn four_of_ten_checks_find_a_fault_without_a_sign() {
        let found: usize = (0..1_000)
            .map(|fault| usize::from(FaultRandom::new(1).check_finds(fault, 0)))
            .sum();
        assert!((350..450).contains(&found), "{found}");
    }
}
