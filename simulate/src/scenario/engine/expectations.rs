//! Checks of a script's expectations.

use std::collections::BTreeSet;

use muster_engine::state::{Attempt, Job, Unit};
use muster_harness::{BEGIN, reports};
use muster_model::command::{AllocationBasis, HostHealth};
use muster_model::lifecycle::UnitPhase;
use muster_model::quota::within;
use muster_model::topology::GpuMask;

use crate::scenario::engine::Failure;
use crate::scenario::engine::driver::Driver;
use crate::scenario::picture::{Picture, phase_text, unit_name};
use crate::scenario::script::{Expectation, ExpectedPhase, GpuName};

impl Driver {
    /// Fails unless the expectation holds.
    pub(crate) fn check(&self, expectation: &Expectation) -> Result<(), Failure> {
        match expectation {
            Expectation::Phase(expected) => self.check_phase(expected),
            Expectation::Waiting { job, because } => self.check_waiting(job, because.as_deref()),
            Expectation::Claim { job, victims } => self.check_claim(job, victims.as_ref()),
            Expectation::NoClaim { job } => match self.claims(job)?.first() {
                None => Ok(()),
                Some(victims) => Err(unmet(
                    format!("no claim of {job}"),
                    format!("one with the victims {victims:?}"),
                )),
            },
            Expectation::Free { gpus, on } => self.check_free(*gpus, on.as_deref()),
            Expectation::Used { queue, gpus } => {
                let found = self.used(queue);
                equal(&format!("{gpus} GPUs used in {queue}"), *gpus, found)
            }
            Expectation::Together { job, level } => self.check_together(job, level),
            Expectation::Refused { because } => self.check_refused(because.as_deref()),
        }
    }

    fn found(&self, name: &str) -> Result<&Job, Failure> {
        let id = self.job(name)?;
        let job = self.engine.state.job(id);
        job.ok_or_else(|| Failure::Unknown(format!("there is no job `{name}`")))
    }

    fn check_phase(&self, expected: &ExpectedPhase) -> Result<(), Failure> {
        let (name, wanted) = split_unit(&expected.job);
        let job = self.found(name)?;
        let units: Vec<&Unit> = job
            .units
            .iter()
            .filter(|(index, _)| wanted.is_none_or(|wanted| index.get() == wanted))
            .map(|(_, unit)| unit.as_ref())
            .filter(|unit| phase_text(unit.phase) == expected.phase)
            .collect();
        let all = if wanted.is_some() {
            1
        } else {
            job.spec.units()
        };
        let count = expected.units.unwrap_or(all);
        if units.len() as u64 != count {
            let phases = self.phases(job);
            return Err(unmet(
                format!("{count} of {} {}", expected.job, expected.phase),
                phases,
            ));
        }
        let attempts = units.iter().filter_map(|unit| unit.attempt.as_deref());
        self.check_attempts(expected, &attempts.collect::<Vec<_>>())
    }

    fn phases(&self, job: &Job) -> String {
        let picture = Picture::of(&self.engine.state, BEGIN, self.engine.now);
        let lines = picture.lines().into_iter().map(|line| line.text);
        let prefixes = [format!("{}:", job.spec.name), format!("{}/", job.spec.name)];
        let about: Vec<String> = lines
            .filter(|line| prefixes.iter().any(|prefix| line.starts_with(prefix)))
            .collect();
        about.join("; ")
    }

    fn check_attempts(
        &self,
        expected: &ExpectedPhase,
        attempts: &[&Attempt],
    ) -> Result<(), Failure> {
        let about = |what: &str| format!("{what} of {}", expected.job);
        let runs = || attempts.iter().flat_map(|attempt| &attempt.tasks);
        let state = &self.engine.state;
        let hosts = runs().filter_map(|run| state.host(run.host));
        let hosts: BTreeSet<String> = hosts.map(|host| host.name.to_string()).collect();
        if let Some(count) = expected.hosts {
            equal(&about("hosts"), count, hosts.len() as u64)?;
        }
        if let Some(on) = &expected.on {
            equal(&about("hosts"), on.iter().cloned().collect(), hosts)?;
        }
        if let Some(tasks) = expected.tasks {
            equal(&about("tasks"), tasks, runs().count() as u64)?;
        }
        if let Some(gpus) = &expected.gpus {
            let held = runs().flat_map(|run| &run.gpus);
            let held = held.filter_map(|gpu| state.gpu(*gpu));
            let held = held.map(|(host, gpu)| GpuName {
                host: host.name.to_string(),
                index: gpu.index,
            });
            let expected: BTreeSet<GpuName> = gpus.iter().cloned().collect();
            equal(&about("GPUs"), expected, held.collect())?;
        }
        if let Some(allocation_basis) = &expected.allocation_basis {
            for attempt in attempts {
                let found = kind_of(&attempt.allocation_basis);
                equal(&about("basis"), kind_of(allocation_basis), found)?;
            }
        }
        Ok(())
    }

    fn check_waiting(&self, name: &str, because: Option<&str>) -> Result<(), Failure> {
        let (bare, wanted) = split_unit(name);
        let job = self.found(bare)?;
        let waits = match wanted {
            Some(unit) => job
                .unit_phase(muster_model::ids::UnitIndex(unit))
                .is_some_and(|phase| phase == UnitPhase::Waiting),
            None => job.counts.waiting > 0,
        };
        let found = self.phases(job);
        if !waits {
            return Err(unmet(format!("{name} waiting"), found));
        }
        match because {
            Some(because) if !found.contains(because) => {
                Err(unmet(format!("{name} waiting because {because}"), found))
            }
            _ => Ok(()),
        }
    }

    /// Victims of every claim of a job.
    fn claims(&self, name: &str) -> Result<Vec<Vec<String>>, Failure> {
        let (bare, _) = split_unit(name);
        let units = self.found(bare)?.units.values();
        let claims = units.filter_map(|unit| unit.claim.as_deref());
        let state = &self.engine.state;
        Ok(claims
            .map(|claim| {
                let victims = claim.victims.iter();
                victims
                    .map(|victim| unit_name(state, victim.job, victim.unit))
                    .collect()
            })
            .collect())
    }

    fn check_claim(&self, name: &str, victims: Option<&Vec<String>>) -> Result<(), Failure> {
        let claims = self.claims(name)?;
        let Some(found) = claims.first() else {
            let found = self.phases(self.found(split_unit(name).0)?);
            return Err(unmet(format!("a claim of {name}"), found));
        };
        match victims {
            Some(victims) => {
                let set = |names: &[String]| names.iter().cloned().collect::<BTreeSet<_>>();
                equal(&format!("victims of {name}"), set(victims), set(found))
            }
            None => Ok(()),
        }
    }

    fn check_free(&self, gpus: u64, on: Option<&str>) -> Result<(), Failure> {
        let hosts = self.engine.state.hosts.values();
        let free = hosts
            .filter(|host| on.is_none_or(|name| &*host.name == name))
            .filter(|host| host.block.is_none() && host.health == HostHealth::Up)
            .flat_map(|host| &host.gpus)
            .filter(|gpu| gpu.is_free());
        equal("free GPUs", gpus, free.count() as u64)
    }

    fn used(&self, queue: &str) -> u64 {
        let attempts = reports::attempts(&self.engine.state);
        let of_queue =
            attempts.filter(|(job, ..)| within(&job.spec.queue).any(|name| name == queue));
        let runs = of_queue.flat_map(|(_, _, _, attempt)| &attempt.tasks);
        runs.map(|run| run.gpus.len() as u64).sum()
    }

    fn check_together(&self, name: &str, level: &str) -> Result<(), Failure> {
        let state = &self.engine.state;
        let topology = &state.topology;
        let id = topology
            .level(level)
            .ok_or_else(|| Failure::Unknown(format!("there is no level `{level}`")))?;
        let mut cells = BTreeSet::new();
        let job = self.job(name)?;
        for (_, _, _, attempt) in reports::attempts(state).filter(|(of, ..)| of.id == job) {
            for run in &attempt.tasks {
                let Some(host) = state.host(run.host) else {
                    continue;
                };
                let positions = host.gpus.iter().enumerate();
                let mask = positions
                    .filter(|(_, gpu)| run.gpus.contains(&gpu.uuid))
                    .fold(GpuMask::default(), |mask, (position, _)| {
                        mask.or(GpuMask::one(position))
                    });
                let around = state.index.host_cells.get(&run.host);
                cells
                    .insert(around.and_then(|cells| cells.enclosing(topology, id, run.host, mask)));
            }
        }
        let one = cells.len() == 1 && !cells.contains(&None);
        if one {
            return Ok(());
        }
        Err(unmet(
            format!("{name} in one {level}"),
            format!("{cells:?}; {}", self.phases(self.found(name)?)),
        ))
    }

    fn check_refused(&self, because: Option<&str>) -> Result<(), Failure> {
        let found = self.refusals.join("; ");
        let fits = !found.is_empty() && because.is_none_or(|because| found.contains(because));
        if fits {
            return Ok(());
        }
        let because = because.map_or_else(String::new, |because| format!(" because {because}"));
        let found = if found.is_empty() {
            "none".to_owned()
        } else {
            found
        };
        Err(unmet(format!("a refusal{because}"), found))
    }
}

/// A job's name and, as in `sweep/3`, its unit.
fn split_unit(name: &str) -> (&str, Option<u32>) {
    match name.rsplit_once('/') {
        Some((job, unit)) => match unit.parse() {
            Ok(unit) => (job, Some(unit)),
            Err(_) => (name, None),
        },
        None => (name, None),
    }
}

const fn kind_of(allocation_basis: &AllocationBasis) -> &'static str {
    match allocation_basis {
        AllocationBasis::Share => "share",
        AllocationBasis::Cells(_) => "cells",
        AllocationBasis::Opportunistic => "opportunistic",
    }
}

fn unmet(expected: String, found: String) -> Failure {
    Failure::Expectation { expected, found }
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, found: T) -> Result<(), Failure> {
    if expected == found {
        return Ok(());
    }
    Err(unmet(format!("{what} {expected:?}"), format!("{found:?}")))
}
