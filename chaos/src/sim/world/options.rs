//! Options of a world.

use std::fmt::Write as _;

use crate::sim::faults::plan::{FaultSelection, Plan};
use crate::sim::mutant::Mutant;
use crate::sim::scale::{Scale, Tempo};

/// Options of a world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorldOptions {
    /// Seed of all random draws.
    pub seed: u64,
    /// Simulated seconds of the fault phase.
    pub faults_s: u64,
    /// A mutant, switched on to prove that the checkers find it.
    pub mutant: Option<Mutant>,
    /// Faults to execute.
    pub faults: FaultSelection,
    /// Jobs of each user; `None` derives the number from the duration.
    pub jobs: Option<u32>,
    /// Size and pace.
    pub scale: Scale,
}

impl WorldOptions {
    /// Number of jobs that each user submits.
    #[must_use]
    pub fn jobs(&self) -> u32 {
        let by_time = self.faults_s / self.scale.tempo.job_every_s();
        let by_time = u32::try_from(by_time).unwrap_or(u32::MAX);
        self.jobs.unwrap_or(by_time)
    }

    /// The cluster and its faults.
    #[must_use]
    pub fn plan(&self) -> Plan {
        Plan::of(self.seed, self.faults_s, self.scale, &self.faults)
    }

    /// Command that reproduces this world by its seed. If the faults come from a file, it does not reproduce
    /// them: they need the file.
    #[must_use]
    pub fn command(&self) -> String {
        let (seed, faults_s) = (self.seed, self.faults_s);
        let mut command = format!(
            "muster chaos sim --first {seed} --seeds 1 --faults-seconds {faults_s} --skip-mutants"
        );
        // Writing to a string cannot fail.
        if let Some(mutant) = self.mutant {
            let _infallible = write!(command, " --mutant {}", mutant.name());
        }
        if let FaultSelection::Only(numbers) = &self.faults {
            let _infallible = write!(command, " --only-faults '{numbers}'");
        }
        if let Some(jobs) = self.jobs {
            let _infallible = write!(command, " --jobs {jobs}");
        }
        if let Some(hosts) = self.scale.hosts {
            let _infallible = write!(command, " --workers {hosts}");
        }
        if self.scale.tempo != Tempo::default() {
            let _infallible = write!(command, " --tempo {}", self.scale.tempo.name());
        }
        command
    }
}
