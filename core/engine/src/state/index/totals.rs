//! Total resources of the cluster, the base of shares.

use muster_model::host::Host;

/// Sums over hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// GPUs of any model.
    pub gpus: u64,
    /// Thousandths of CPUs.
    pub cpus_milli: u64,
    /// Memory in MiB.
    pub memory_mib: u64,
}

impl Totals {
    /// Returns the resources of one host.
    #[must_use]
    pub const fn of(host: &Host) -> Self {
        Self {
            gpus: host.gpus.len() as u64,
            cpus_milli: host.cpus_milli as u64,
            memory_mib: host.memory_mib,
        }
    }

    /// Replaces the counted resources of a host.
    pub(crate) const fn replace(&mut self, before: &Self, after: &Self) {
        self.gpus = self.gpus + after.gpus - before.gpus;
        self.cpus_milli = self.cpus_milli + after.cpus_milli - before.cpus_milli;
        // Hosts may report any amount of memory; the sum saturates on absurd reports.
        self.memory_mib = self
            .memory_mib
            .wrapping_add(after.memory_mib)
            .wrapping_sub(before.memory_mib);
    }
}
