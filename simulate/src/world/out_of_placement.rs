//! GPUs out of placement: the faulty ones, and what the healthy ones wait for.

use std::ops::{Add, Sub};

use muster_health::state::HealthState;
use muster_model::health::{Component, Phase};
use muster_model::host::{Gpu, Host};
use muster_model::ids::HostId;
use muster_model::time::TimeMs;
use serde::Serialize;

use crate::workload::OutageTarget;
use crate::world::fault_injection::position;
use crate::world::run::World;

/// An amount of healthy, unheld GPUs out of placement, by what they wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HealthyOutByCause<T> {
    /// For running work on a draining host.
    pub draining: T,
    /// For time to pass, a free repair slot, or a reading to be healthy.
    pub waiting: T,
    /// For an operator: nothing automatic unblocks them.
    pub operator: T,
    /// For the end of a check or a repair.
    pub checking: T,
}

impl<T: Copy> HealthyOutByCause<T> {
    /// Converts the amounts to another unit.
    pub fn map<U>(self, other: impl Fn(T) -> U) -> HealthyOutByCause<U> {
        HealthyOutByCause {
            draining: other(self.draining),
            waiting: other(self.waiting),
            operator: other(self.operator),
            checking: other(self.checking),
        }
    }

    fn zip(self, with: Self, both: impl Fn(T, T) -> T) -> Self {
        Self {
            draining: both(self.draining, with.draining),
            waiting: both(self.waiting, with.waiting),
            operator: both(self.operator, with.operator),
            checking: both(self.checking, with.checking),
        }
    }
}

impl<T: Copy + Add<Output = T>> HealthyOutByCause<T> {
    /// Total of all amounts.
    pub fn total(self) -> T {
        self.draining + self.waiting + self.operator + self.checking
    }

    pub(super) fn plus(self, more: Self) -> Self {
        self.zip(more, Add::add)
    }
}

/// GPUs out of placement, and the number of faulty ones.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostSum {
    pub(super) out: u32,
    pub(super) faulty: u32,
    pub(super) healthy_out: HealthyOutByCause<u32>,
}

impl HostSum {
    fn zip(self, with: Self, both: impl Fn(u32, u32) -> u32) -> Self {
        Self {
            out: both(self.out, with.out),
            faulty: both(self.faulty, with.faulty),
            healthy_out: self.healthy_out.zip(with.healthy_out, both),
        }
    }

    pub(super) fn plus(self, more: Self) -> Self {
        self.zip(more, Add::add)
    }

    pub(super) fn minus(self, less: Self) -> Self {
        self.zip(less, Sub::sub)
    }
}

impl World<'_> {
    /// Counts a host's GPUs out of placement.
    pub(super) fn count_out(&mut self, id: HostId) {
        let Some(simulation) = &self.fault_simulation else {
            return;
        };
        let Some(host) = self.engine.state.host(id) else {
            return;
        };
        let active = simulation.active_on(position(id));
        let real = active
            .iter()
            .map(|it| self.fault(*it))
            .filter(|fault| !fault.is_false);
        let places: Vec<OutageTarget> = real.map(|fault| fault.place).collect();
        let (health, now) = (&self.engine.state.health, self.engine.now);
        let mut sum = HostSum::default();
        for gpu in &host.gpus {
            let is_out = !host.accepts_work() || !gpu.usable();
            let is_faulty = places.iter().any(|place| match place {
                OutageTarget::Host(_) => true,
                OutageTarget::Gpu(_, index) => *index == gpu.index,
            });
            sum.out += u32::from(is_out);
            sum.faulty += u32::from(is_faulty);
            if is_out && gpu.holder.is_none() && !is_faulty {
                *waits_for(health, host, gpu, now).of(&mut sum.healthy_out) += 1;
            }
        }
        self.fault_simulation().set_host(id, sum);
    }
}

/// The event that a component out of placement waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitsFor {
    Work,
    Time,
    Person,
    Check,
}

impl WaitsFor {
    const fn of<T>(self, by: &mut HealthyOutByCause<T>) -> &mut T {
        match self {
            Self::Work => &mut by.draining,
            Self::Time => &mut by.waiting,
            Self::Person => &mut by.operator,
            Self::Check => &mut by.checking,
        }
    }
}

/// The event that a GPU out of placement waits for: by its own condition, otherwise by its host's.
fn waits_for(health: &HealthState, host: &Host, gpu: &Gpu, now: TimeMs) -> WaitsFor {
    let conditions = [Component::Gpu(gpu.uuid), Component::Host(host.id)];
    let out = conditions
        .iter()
        .filter_map(|component| health.condition(component))
        .find(|condition| !condition.phase.accepts_work());
    let Some(condition) = out else {
        return WaitsFor::Time;
    };
    match condition.phase {
        Phase::Draining | Phase::DrainingAdmin => WaitsFor::Work,
        Phase::Repairing | Phase::Checking => WaitsFor::Check,
        Phase::Rma | Phase::BlockedAdmin => WaitsFor::Person,
        Phase::Blocked if condition.needs_operator(now) => WaitsFor::Person,
        Phase::Blocked | Phase::Healthy | Phase::Suspect | Phase::Probation => WaitsFor::Time,
    }
}
