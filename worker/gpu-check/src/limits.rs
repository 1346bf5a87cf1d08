//! Every limit of a check, with its reason.

/// Words of 8 bytes of a block of memory, 64 MiB: long enough for a copy to be as fast as the bus allows.
pub(crate) const BLOCK_WORDS: usize = 8 << 20;
/// Copies of a block by which a way is measured: 4 GiB, a fifth of a second at 20 GB/s.
pub(crate) const COPIES: usize = 64;
/// Copies before that, which are not measured: the bus wakes from its rest.
pub(crate) const WARM_UP_COPIES: usize = 4;
/// Products that are added up before their sum is looked at.
pub(crate) const PRODUCTS_PER_ROUND: u32 = 64;
/// Greatest absolute value of a matrix's element.
pub(crate) const ELEMENT_MAX: i64 = 2;
/// Rows of the greatest matrix: two of them and their product hold 2.5 GiB in the wider format.
pub(crate) const SIZE_MAX: usize = 16_384;
/// Weights by which a row's elements are added up are below this: a row with one wrong element is always found, one with several by
/// all but a millionth.
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
