//! Probability of a number of failures by chance: the binomial tail in integer arithmetic.
//!
//! Terms are kept with their own exponent, because those of many starts are too small for any fixed point;
//! only their sum is rounded. The error is below 2^-50 of each term.

/// A probability of 1.
pub const ONE: u64 = 1 << 32;
/// Beyond this number of trials both counts are halved until they fit, which makes a probability larger,
/// never smaller.
const TRIALS_MAX: u32 = 4_096;
/// Fractional bits of a sum.
const SUM_BITS: i32 = 62;

/// A failure rate: `failures` in `trials`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    failures: u64,
    trials: u64,
}

impl Rate {
    /// Clamps a rate: below one, and above zero.
    #[must_use]
    pub fn new(failures: u64, trials: u64) -> Self {
        // Both fit 32 bits, so that products with counts fit 64.
        let shift = (64 - trials.leading_zeros()).saturating_sub(32);
        let trials = (trials >> shift).max(2);
        Self {
            failures: (failures >> shift).clamp(1, trials - 1),
            trials,
        }
    }

    /// Failures per million trials.
    #[must_use]
    pub const fn ppm(self) -> u64 {
        self.failures * 1_000_000 / self.trials
    }
}

/// A positive number: `mantissa * 2^exponent`, with the highest bit of the mantissa set; or 0.
#[derive(Clone, Copy, Debug)]
struct Scaled {
    mantissa: u64,
    exponent: i32,
}

impl Scaled {
    const fn of(value: u128, exponent: i32) -> Self {
        if value == 0 {
            return Self {
                mantissa: 0,
                exponent: 0,
            };
        }
        let length = 128 - value.leading_zeros() as i32;
        let mantissa = if length > 64 {
            (value >> (length - 64)) as u64
        } else {
            (value << (64 - length)) as u64
        };
        Self {
            mantissa,
            exponent: exponent + length - 64,
        }
    }

    /// `numerator / denominator`.
    const fn ratio(numerator: u64, denominator: u64) -> Self {
        Self::of(((numerator as u128) << 64) / denominator as u128, -64)
    }

    const fn times(self, other: Self) -> Self {
        let product = self.mantissa as u128 * other.mantissa as u128;
        Self::of(product, self.exponent + other.exponent)
    }

    /// In fractions of `2^SUM_BITS`, rounded down.
    const fn fixed(self) -> u64 {
        let shift = self.exponent + SUM_BITS;
        if shift <= -64 {
            0
        } else if shift < 0 {
            self.mantissa >> -shift
        } else {
            // A probability is at most 1.
            1 << SUM_BITS
        }
    }
}

/// Probability of at least this many failures in this many trials at a rate, in fractions of [`ONE`].
#[must_use]
pub fn at_least(trials: u32, failures: u32, rate: Rate) -> u64 {
    let (mut trials, mut failures) = (trials, failures.min(trials));
    while trials > TRIALS_MAX {
        trials = trials.div_ceil(2);
        failures /= 2;
    }
    if failures == 0 {
        return ONE;
    }
    let (bad, good) = (rate.failures, rate.trials - rate.failures);
    let mut term = power(Scaled::ratio(good, rate.trials), trials);
    let mut sum = 0u64;
    for count in 0..=trials {
        if count >= failures {
            let share = term.fixed();
            sum = sum.saturating_add(share);
            // Beyond the most likely count terms only decrease.
            let is_behind = u64::from(count) * rate.trials > u64::from(trials) * bad;
            if share == 0 && is_behind {
                break;
            }
        }
        let numerator = u64::from(trials - count) * bad;
        term = term.times(Scaled::ratio(numerator, u64::from(count + 1) * good));
    }
    (sum >> (SUM_BITS - 32)).min(ONE)
}

fn power(base: Scaled, exponent: u32) -> Scaled {
    let mut result = Scaled::ratio(1, 1);
    let mut square = base;
    let mut left = exponent;
    while left > 0 {
        if left & 1 == 1 {
            result = result.times(square);
        }
        square = square.times(square);
        left >>= 1;
    }
    result
}
