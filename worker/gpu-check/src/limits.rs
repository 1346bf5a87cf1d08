//! Limits of a check, with their reasons.

/// Words of 8 bytes in a block of memory, 64 MiB: large enough for a copy at the full speed of the bus.
pub(crate) const BLOCK_WORDS: usize = 8 << 20;
/// Copies of a block in a bandwidth measurement: 4 GiB, a fifth of a second at 20 GB/s.
pub(crate) const COPIES: usize = 64;
/// Unmeasured copies before that, which wake the bus from its low-power state.
pub(crate) const WARM_UP_COPIES: usize = 4;
/// Products added up before their sum is checked.
pub(crate) const PRODUCTS_PER_ROUND: u32 = 64;
/// Greatest absolute value of a matrix element.
pub(crate) const ELEMENT_MAX: i64 = 2;
/// Rows of the largest matrix: two of them and their product hold 2.5 GiB in the wider format.
pub(crate) const SIZE_MAX: usize = 16_384;
/// Upper bound of the weights with which a row's elements are added up: a row with one wrong element is
/// always found, one with several with a probability of all but a millionth.
pub(crate) const WEIGHT_MAX: i64 = 1 << 20;
// Sums of products are exact in single precision, and weighted sums of those in 64 bits.
const _: () = {
    let sum_max = ELEMENT_MAX * ELEMENT_MAX * SIZE_MAX as i64 * PRODUCTS_PER_ROUND as i64;
    assert!(sum_max < 1 << 24);
    assert!(sum_max.checked_mul(WEIGHT_MAX).is_some());
    assert!(
        (sum_max * WEIGHT_MAX)
            .checked_mul(SIZE_MAX as i64)
            .is_some()
    );
};
