//! Which worlds a sweep runs.

use std::ops::Range;
use std::path::PathBuf;

use crate::sim::mutant::Mutant;
use crate::sim::plan::Acts;
use crate::sim::scale::Scale;

/// Which worlds to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepOptions {
    /// First seed.
    pub first: u64,
    /// Number of seeds.
    pub seeds: u64,
    /// Where the second half of the seeds begins; right after the first half by default.
    pub second_half: Option<u64>,
    /// Simulated seconds with faults, per world.
    pub faults_s: u64,
    /// Whether each world gets a line, not only those that fail.
    pub all_lines: bool,
    /// Mutants that the judges must find.
    pub mutants: Vec<Mutant>,
    /// A known bug that is switched on in every world.
    pub mutant: Option<Mutant>,
    /// Which acts are carried out.
    pub acts: Acts,
    /// Jobs of each user.
    pub jobs: Option<u32>,
    /// How large and how fast the worlds are.
    pub scale: Scale,
    /// This program, to run one world in a process of its own.
    pub program: Option<PathBuf>,
}

impl SweepOptions {
    /// The seeds, in the order in which they are run.
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
