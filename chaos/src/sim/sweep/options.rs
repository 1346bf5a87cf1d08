//! Options of a sweep.

use std::ops::Range;
use std::path::PathBuf;

use crate::sim::faults::plan::FaultSelection;
use crate::sim::mutant::Mutant;
use crate::sim::scale::Scale;

/// Options of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepOptions {
    /// First seed.
    pub first: u64,
    /// Number of seeds.
    pub seeds: u64,
    /// First seed of the second half of the seeds; follows the first half by default.
    pub second_half: Option<u64>,
    /// Simulated seconds with faults, per world.
    pub faults_s: u64,
    /// Whether each world gets a line, not only failed ones.
    pub all_lines: bool,
    /// Mutants that the checkers must find.
    pub mutants: Vec<Mutant>,
    /// A mutant that is switched on in every world.
    pub mutant: Option<Mutant>,
    /// Faults to execute.
    pub faults: FaultSelection,
    /// Jobs of each user.
    pub jobs: Option<u32>,
    /// Size and pace of the worlds.
    pub scale: Scale,
    /// Path of this program, to run one world in a separate process.
    pub program: Option<PathBuf>,
}

impl SweepOptions {
    /// The seeds in the order of execution.
    #[must_use]
    pub fn ranges(&self) -> [Range<u64>; 2] {
        let half = self.seeds.div_ceil(2);
        let second = self
            .second_half
            .unwrap_or_else(|| self.first.saturating_add(half));
        [(self.first, half), (second, self.seeds - half)]
            .map(|(start, count)| start..start.saturating_add(count))
    }
}
