//! Memory test: patterns, written to most of the free memory and read back.
//!
//! All memory is written before any is read, to detect cells that disturb each other or answer under each
//! other's address.

use crate::driver::{Block, Gpu, HostBlock, words, words_mut};
use crate::error::CheckError;
use crate::limits::BLOCK_WORDS;

/// Words compared at once; only the words of a differing piece are compared one by one.
const PIECE_WORDS: usize = 512;
/// Spreads word indices over all bits: 2^64 divided by the golden ratio, and odd.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Content to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// The same word everywhere.
    Word(u64),
    /// A different word at each position.
    Position,
}

/// Every bit as 0 and as 1, next to equal and to different ones, and addresses.
const PATTERNS: [Pattern; 5] = [
    Pattern::Word(0),
    Pattern::Word(u64::MAX),
    Pattern::Word(0x5555_5555_5555_5555),
    Pattern::Word(0xaaaa_aaaa_aaaa_aaaa),
    Pattern::Position,
];

/// Results of a GPU's memory test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryFindings {
    /// Bytes tested.
    pub(crate) bytes: u64,
    /// Number of patterns.
    pub(crate) patterns: usize,
    /// Words of 8 bytes that were read back different.
    pub(crate) miscompares: u64,
}

/// Tests this share of a GPU's free memory.
pub(crate) fn check(gpu: &Gpu, percent: u8) -> Result<MemoryFindings, CheckError> {
    let mut host = gpu.host_block::<u64>(BLOCK_WORDS)?;
    let mut blocks = take(gpu, percent)?;
    let mut findings = MemoryFindings {
        bytes: (blocks.len() * BLOCK_WORDS * size_of::<u64>()) as u64,
        patterns: PATTERNS.len(),
        miscompares: 0,
    };
    for pattern in PATTERNS {
        write(gpu, pattern, &mut host, &mut blocks)?;
        findings.miscompares += read(gpu, pattern, &mut host, &blocks)?;
    }
    Ok(findings)
}

/// Allocates blocks up to this share of the free memory, as long as that succeeds.
fn take(gpu: &Gpu, percent: u8) -> Result<Vec<Block<u64>>, CheckError> {
    let free = gpu.free_bytes()?;
    let block_bytes = (BLOCK_WORDS * size_of::<u64>()) as u64;
    let wanted = free / 100 * u64::from(percent) / block_bytes;
    let mut blocks = Vec::new();
    for _ in 0..wanted {
        match gpu.block(BLOCK_WORDS)? {
            Some(block) => blocks.push(block),
            None => break,
        }
    }
    if blocks.is_empty() {
        return Err(CheckError::Occupied {
            free_mib: free >> 20,
        });
    }
    Ok(blocks)
}

fn write(
    gpu: &Gpu,
    pattern: Pattern,
    host: &mut HostBlock<u64>,
    blocks: &mut [Block<u64>],
) -> Result<(), CheckError> {
    for (number, block) in blocks.iter_mut().enumerate() {
        if number == 0 || pattern == Pattern::Position {
            pattern.fill(number, words_mut(host)?);
        }
        gpu.upload(host, block)?;
    }
    Ok(())
}

fn read(
    gpu: &Gpu,
    pattern: Pattern,
    host: &mut HostBlock<u64>,
    blocks: &[Block<u64>],
) -> Result<u64, CheckError> {
    let mut expected = vec![0; PIECE_WORDS];
    let mut miscompares = 0;
    for (number, block) in blocks.iter().enumerate() {
        gpu.download(block, host)?;
        for (piece, words) in words(host)?.chunks(PIECE_WORDS).enumerate() {
            pattern.fill_from(number * BLOCK_WORDS + piece * PIECE_WORDS, &mut expected);
            miscompares += differing(&expected, words);
        }
    }
    Ok(miscompares)
}

/// Number of words that differ from the expected ones.
fn differing(expected: &[u64], words: &[u64]) -> u64 {
    let expected = &expected[..words.len()];
    if expected == words {
        return 0;
    }
    let pairs = expected.iter().zip(words);
    pairs.filter(|(expected, word)| expected != word).count() as u64
}

impl Pattern {
    /// Writes a block.
    fn fill(self, block: usize, words: &mut [u64]) {
        self.fill_from(block * BLOCK_WORDS, words);
    }

    /// Writes words, the first of which has this index.
    pub(crate) fn fill_from(self, first: usize, words: &mut [u64]) {
        match self {
            Self::Word(word) => words.fill(word),
            Self::Position => {
                for (word, number) in words.iter_mut().zip(first as u64..) {
                    *word = number.wrapping_mul(SPREAD);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_differ_in_every_word_and_continue_across_blocks() {
        let mut whole = vec![0; 64];
        Pattern::Position.fill_from(BLOCK_WORDS - 32, &mut whole);
        let distinct: std::collections::BTreeSet<u64> = whole.iter().copied().collect();
        assert_eq!(distinct.len(), 64);
        let mut second = vec![0; 32];
        Pattern::Position.fill(1, &mut second);
        assert_eq!(second, whole[32..]);
    }

    #[test]
    fn every_word_that_differs_is_counted() {
        let expected = [7; 8];
        assert_eq!(differing(&expected, &expected[..5]), 0);
        assert_eq!(differing(&expected, &[7, 6, 7, 7, 5]), 2);
    }
}
