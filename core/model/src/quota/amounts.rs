//! Amounts of resources: used, guaranteed or allowed.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::spec::Resources;

/// Amounts of each resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Amounts {
    /// GPUs of any model, those in `gpus_by_model` included.
    pub gpus: u64,
    /// GPUs by model; no entry is 0.
    pub gpus_by_model: BTreeMap<String, u64>,
    /// Thousandths of CPUs.
    pub cpus_milli: u64,
    /// Memory in MiB.
    pub memory_mib: u64,
}

/// Maximum of each resource; `None` means no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// GPUs of any model.
    pub gpus: Option<u64>,
    /// GPUs by model; a model that is not named has no limit of its own.
    pub gpus_by_model: BTreeMap<String, u64>,
    /// Thousandths of CPUs.
    pub cpus_milli: Option<u64>,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
}

impl Amounts {
    /// Whether all amounts are zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// Adds GPUs of one model.
    pub fn add_gpus(&mut self, model: &str, gpus: u64) {
        self.gpus = self.gpus.saturating_add(gpus);
        self.count_model(model, gpus);
    }

    fn count_model(&mut self, model: &str, gpus: u64) {
        if gpus == 0 {
            return;
        }
        match self.gpus_by_model.get_mut(model) {
            Some(count) => *count = count.saturating_add(gpus),
            None => {
                self.gpus_by_model.insert(model.to_owned(), gpus);
            }
        }
    }

    /// Adds the resources of several tasks, on GPUs of one model (empty if they need none). Saturates.
    pub fn add_tasks(&mut self, resources: &Resources, gpu_model: &str, tasks: u64) {
        self.add_gpus(gpu_model, u64::from(resources.gpus) * tasks);
        let cpus_milli = u64::from(resources.cpus_milli) * tasks;
        self.cpus_milli = self.cpus_milli.saturating_add(cpus_milli);
        let memory_mib = resources.memory_mib.saturating_mul(tasks);
        self.memory_mib = self.memory_mib.saturating_add(memory_mib);
    }

    /// Adds other amounts; saturates like [`Self::add_tasks`], as configured guarantees may be any numbers.
    pub fn add(&mut self, other: &Self) {
        self.gpus = self.gpus.saturating_add(other.gpus);
        for (model, gpus) in &other.gpus_by_model {
            self.count_model(model, *gpus);
        }
        self.cpus_milli = self.cpus_milli.saturating_add(other.cpus_milli);
        self.memory_mib = self.memory_mib.saturating_add(other.memory_mib);
    }

    /// Subtracts other amounts, down to zero.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let by_model = self.gpus_by_model.iter().map(|(model, gpus)| {
            let less = other.gpus_by_model.get(model).copied().unwrap_or(0);
            (model.clone(), gpus.saturating_sub(less))
        });
        Self {
            gpus: self.gpus.saturating_sub(other.gpus),
            gpus_by_model: by_model.filter(|(_, left)| *left > 0).collect(),
            cpus_milli: self.cpus_milli.saturating_sub(other.cpus_milli),
            memory_mib: self.memory_mib.saturating_sub(other.memory_mib),
        }
    }

    /// Subtracts other amounts, which must be included.
    pub fn subtract(&mut self, other: &Self) {
        self.gpus -= other.gpus;
        for (model, gpus) in &other.gpus_by_model {
            if let Some(left) = self.gpus_by_model.get_mut(model) {
                *left -= gpus;
            }
        }
        self.gpus_by_model.retain(|_, left| *left > 0);
        self.cpus_milli -= other.cpus_milli;
        self.memory_mib -= other.memory_mib;
    }

    /// Amount of a resource, by its name in [`Self::over`].
    #[must_use]
    pub fn of(&self, resource: &str) -> u64 {
        match resource {
            "gpus" => self.gpus,
            "cpus_milli" => self.cpus_milli,
            "memory_mib" => self.memory_mib,
            _ => resource
                .strip_prefix("gpus_by_model.")
                .and_then(|model| self.gpus_by_model.get(model))
                .copied()
                .unwrap_or(0),
        }
    }

    /// The first resource of which `added` exceeds a limit: its name, the new total, and the limit. Resources
    /// of which nothing is added are not checked.
    #[must_use]
    pub fn over(&self, added: &Self, limits: &Limits) -> Option<(String, u64, u64)> {
        let mut kinds = vec![
            ("gpus".to_owned(), self.gpus, added.gpus, limits.gpus),
            (
                "cpus_milli".to_owned(),
                self.cpus_milli,
                added.cpus_milli,
                limits.cpus_milli,
            ),
            (
                "memory_mib".to_owned(),
                self.memory_mib,
                added.memory_mib,
                limits.memory_mib,
            ),
        ];
        kinds.extend(added.gpus_by_model.iter().map(|(model, more)| {
            let used = self.gpus_by_model.get(model).copied().unwrap_or(0);
            let limit = limits.gpus_by_model.get(model).copied();
            (format!("gpus_by_model.{model}"), used, *more, limit)
        }));
        kinds.into_iter().find_map(|(name, used, more, limit)| {
            let wanted = used.saturating_add(more);
            let exceeded = limit.filter(|limit| more > 0 && wanted > *limit)?;
            Some((name, wanted, exceeded))
        })
    }
}
