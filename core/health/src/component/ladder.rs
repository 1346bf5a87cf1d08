//! Which repair comes next: what did not help is not tried for ever.

use std::collections::VecDeque;

use muster_model::health::DeviceAction;
use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};

use crate::component::Patience;

/// Repairs that are remembered of a component: the newest ones.
pub const REPAIRS_KEPT_MAX: u32 = 16;

/// What was done to a component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repairs {
    done: VecDeque<(TimeMs, DeviceAction)>,
}

impl Repairs {
    /// A repair was completed.
    pub fn complete(&mut self, now: TimeMs, action: DeviceAction) {
        if self.done.len() >= REPAIRS_KEPT_MAX as usize {
            self.done.pop_front();
        }
        self.done.push_back((now, action));
    }

    /// Whether a component was repaired so often lately that a person looks instead, and alone gives it back.
    #[must_use]
    pub fn is_worn_out(&self, now: TimeMs, patience: Patience) -> bool {
        let is_recent =
            |(at, _): &&(TimeMs, DeviceAction)| now.since(*at) <= patience.repairs_span_ms;
        self.done.iter().filter(is_recent).count() >= patience.repairs_max as usize
    }

    /// What is done instead of a repair that was asked for: the next step of the ladder, if this one did not help.
    #[must_use]
    pub fn next(&self, now: TimeMs, wanted: DeviceAction, patience: Patience) -> DeviceAction {
        let reboots = self.done.iter().filter(|(at, action)| {
            *action == DeviceAction::Reboot && now.since(*at) <= patience.reboots_span_ms
        });
        let is_repair = matches!(
            wanted,
            DeviceAction::Reset | DeviceAction::ResetIdle | DeviceAction::Reboot
        );
        let reboots_helped =
            wanted != DeviceAction::Reboot || reboots.count() < patience.reboots_max as usize;
        if is_repair && (self.is_worn_out(now, patience) || !reboots_helped) {
            return DeviceAction::Inspect;
        }
        wanted
    }
}
