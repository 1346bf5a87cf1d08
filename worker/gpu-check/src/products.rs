//! Products of integer matrices, whose every bit is known.
//!
//! A round adds one product to itself many times, so that an error in any of them remains visible in the
//! sum, which is exact. The first sum is checked against the factors by Freivalds' test: weighted by random
//! numbers, the elements of each of its rows must add up to a value computed from the factors, which costs
//! the host quadratic and not cubic time. Later sums must equal the first one.

use crate::driver::{Block, Element, Gpu, HostBlock, Multiplier, Precision, words, words_mut};
use crate::error::CheckError;
use crate::limits::{ELEMENT_MAX, PRODUCTS_PER_ROUND, WEIGHT_MAX};

/// The precisions of the factors.
pub(crate) const KINDS: [Precision; 2] = [Precision::Half, Precision::Single];
/// Minimum number of rounds: one sum is compared with the next.
const ROUNDS_MIN: u32 = 2;
/// Seeds of the factors and of the weights.
const SEEDS: [u64; 3] = [1, 2, 3];
/// Constants of Knuth's 64-bit generator (MMIX).
const GENERATOR: (u64, u64) = (6_364_136_223_846_793_005, 1_442_695_040_888_963_407);
/// Integers from 0 to 2 in half precision, and the sign bit.
const HALVES: [u16; 3] = [0x0000, 0x3c00, 0x4000];
const HALF_SIGN: u16 = 0x8000;

/// Results of the products.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ProductFindings {
    pub(crate) precision: Precision,
    /// Number of products computed.
    pub(crate) products: u64,
    /// Wrong rows of the first sum, and wrong elements of later ones.
    pub(crate) miscompares: u64,
    /// 10^12 additions and multiplications per second.
    pub(crate) tflop_per_s: f64,
}

/// A matrix of small integers in column order.
struct Matrix {
    size: usize,
    elements: Vec<i8>,
}

/// Multiplies on a GPU for at least `seconds`.
pub(crate) fn check(
    multiplier: &Multiplier<'_>,
    precision: Precision,
    size: usize,
    seconds: u32,
) -> Result<ProductFindings, CheckError> {
    let factors = [SEEDS[0], SEEDS[1]].map(|seed| Matrix::random(size, seed));
    match precision {
        Precision::Half => multiply(multiplier, precision, &factors, seconds, half),
        Precision::Single => multiply(multiplier, precision, &factors, seconds, f32::from),
    }
}

fn multiply<T: Element>(
    multiplier: &Multiplier<'_>,
    precision: Precision,
    factors: &[Matrix; 2],
    seconds: u32,
    written: impl Fn(i8) -> T + Copy,
) -> Result<ProductFindings, CheckError> {
    let size = factors[0].size;
    let gpu = multiplier.gpu();
    let left = upload(gpu, &factors[0], written)?;
    let right = upload(gpu, &factors[1], written)?;
    let mut sum = block(gpu, size * size)?;
    let mut read = gpu.host_block::<f32>(size * size)?;
    let mut first: Vec<f32> = Vec::new();
    let (mut rounds, mut took_ms, mut miscompares) = (0, 0.0, 0);
    while rounds < ROUNDS_MIN || took_ms < f64::from(seconds) * 1e3 {
        took_ms += gpu.timed(|| {
            (0..PRODUCTS_PER_ROUND).try_for_each(|number| {
                let adds = number > 0;
                multiplier.multiply(precision, size, &left, &right, &mut sum, adds)
            })
        })?;
        gpu.download(&sum, &mut read)?;
        let sums = words(&read)?;
        if rounds == 0 {
            miscompares += wrong_rows(factors, PRODUCTS_PER_ROUND, sums);
            first = sums.to_vec();
        } else {
            miscompares += differing(&first, sums);
        }
        rounds += 1;
    }
    let products = u64::from(rounds) * u64::from(PRODUCTS_PER_ROUND);
    let operations = 2.0 * (size as f64).powi(3) * products as f64;
    Ok(ProductFindings {
        precision,
        products,
        miscompares,
        tflop_per_s: operations / took_ms / 1e9,
    })
}

fn upload<T: Element>(
    gpu: &Gpu,
    matrix: &Matrix,
    written: impl Fn(i8) -> T,
) -> Result<Block<T>, CheckError> {
    let mut host: HostBlock<T> = gpu.host_block(matrix.elements.len())?;
    for (to, element) in words_mut(&mut host)?.iter_mut().zip(&matrix.elements) {
        *to = written(*element);
    }
    let mut inside = block(gpu, matrix.elements.len())?;
    gpu.upload(&host, &mut inside)?;
    Ok(inside)
}

fn block<T: Element>(gpu: &Gpu, length: usize) -> Result<Block<T>, CheckError> {
    let block = gpu.block(length)?;
    let free_mib = gpu.free_bytes()? >> 20;
    block.ok_or(CheckError::Occupied { free_mib })
}

impl Matrix {
    fn random(size: usize, seed: u64) -> Self {
        let mut draw = generator(seed);
        let span = 2 * ELEMENT_MAX + 1;
        let mut element = || i8::try_from(draw(span) - ELEMENT_MAX).unwrap_or(0);
        Self {
            size,
            elements: (0..size * size).map(|_| element()).collect(),
        }
    }

    /// Product of this matrix and a column vector.
    fn times(&self, column: &[i64]) -> Vec<i64> {
        let mut result = vec![0; self.size];
        for (elements, weight) in self.elements.chunks(self.size).zip(column) {
            for (sum, element) in result.iter_mut().zip(elements) {
                *sum += i64::from(*element) * weight;
            }
        }
        result
    }
}

/// Number of wrong rows in a sum of `products` products of the factors. Sums are in column order.
fn wrong_rows(factors: &[Matrix; 2], products: u32, sums: &[f32]) -> u64 {
    let size = factors[0].size;
    let mut draw = generator(SEEDS[2]);
    // Never 0, which would hide an element.
    let weights: Vec<i64> = (0..size).map(|_| 1 + draw(WEIGHT_MAX - 1)).collect();
    let expected = factors[0].times(&factors[1].times(&weights));
    let sum_max = ELEMENT_MAX * ELEMENT_MAX * size as i64 * i64::from(products);
    let mut found = vec![0; size];
    let mut is_wrong = vec![false; size];
    for (column, weight) in sums.chunks(size).zip(&weights) {
        for (row, sum) in column.iter().enumerate() {
            // Impossible sums would overflow; NaN becomes 0.
            let whole = (*sum as i64).clamp(-sum_max, sum_max);
            is_wrong[row] |= whole as f32 != *sum;
            found[row] += whole * weight;
        }
    }
    let rows = (0..size)
        .filter(|row| is_wrong[*row] || found[*row] != expected[*row] * i64::from(products));
    rows.count() as u64
}

/// Number of elements that differ in any bit.
fn differing(first: &[f32], sums: &[f32]) -> u64 {
    let pairs = first.iter().zip(sums);
    let differs = |(first, sum): &(&f32, &f32)| first.to_bits() != sum.to_bits();
    pairs.filter(differs).count() as u64
}

/// Generates integers from 0 up to a bound of at most 2^31, the same ones for the same seed.
fn generator(seed: u64) -> impl FnMut(i64) -> i64 {
    let mut state = seed;
    move |bound| {
        state = state.wrapping_mul(GENERATOR.0).wrapping_add(GENERATOR.1);
        // The upper bits are the random ones.
        let drawn = (state >> 32) % bound.unsigned_abs().max(1);
        i64::try_from(drawn).unwrap_or(0)
    }
}

/// A small integer in half precision.
fn half(element: i8) -> u16 {
    let bits = HALVES[usize::from(element.unsigned_abs())];
    if element < 0 { bits | HALF_SIGN } else { bits }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 24;
    const PRODUCTS: u32 = 3;

    /// Two factors, and their product, added up.
    fn sums() -> ([Matrix; 2], Vec<f32>) {
        let factors = [1, 2].map(|seed| Matrix::random(SIZE, seed));
        let at = |matrix: &Matrix, row: usize, column: usize| {
            f32::from(matrix.elements[column * SIZE + row])
        };
        let mut sums = Vec::new();
        for column in 0..SIZE {
            for row in 0..SIZE {
                let inner = 0..SIZE;
                let element: f32 = inner
                    .map(|inner| at(&factors[0], row, inner) * at(&factors[1], inner, column))
                    .sum();
                sums.push(element * 3.0);
            }
        }
        (factors, sums)
    }

    #[test]
    fn a_right_sum_has_no_wrong_row_and_every_wrong_bit_is_seen() {
        let (factors, right) = sums();
        assert_eq!(wrong_rows(&factors, PRODUCTS, &right), 0);
        assert_eq!(wrong_rows(&factors, PRODUCTS + 1, &right), SIZE as u64);
        for bit in [0, 12, 22, 23, 30, 31] {
            let mut wrong = right.clone();
            // One element in each of two rows.
            for at in [7, 5 * SIZE + 9] {
                wrong[at] = f32::from_bits((right[at] + 1.0).to_bits() ^ (1 << bit));
            }
            assert_eq!(wrong_rows(&factors, PRODUCTS, &wrong), 2, "bit {bit}");
            assert_eq!(differing(&right, &wrong), 2, "bit {bit}");
        }
        for nonsense in [f32::NAN, f32::INFINITY, f32::MIN] {
            let mut wrong = right.clone();
            wrong[3] = nonsense;
            assert_eq!(wrong_rows(&factors, PRODUCTS, &wrong), 1);
        }
    }

    #[test]
    fn elements_are_small_and_of_both_signs_and_encoded_as_half_precision() {
        let matrix = Matrix::random(SIZE, 1);
        let drawn: std::collections::BTreeSet<i8> = matrix.elements.into_iter().collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [-2, -1, 0, 1, 2]);
        let written = [-2, -1, 0, 1, 2].map(half);
        assert_eq!(written, [0xc000, 0xbc00, 0, 0x3c00, 0x4000]);
    }
}
