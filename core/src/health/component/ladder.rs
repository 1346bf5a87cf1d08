//! Which repair comes next: what did not help is not tried for ever.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::Patience;
use crate::health::DAY_MS;
use crate::health::rules::DeviceAction;
use crate::time::TimeMs;

/// Reboots within three days after which a person looks (gpud: 2).
const REBOOTS_MAX: usize = 2;
const REBOOTS_SPAN_MS: u64 = 3 * DAY_MS;
/// The week of which the rule `remediations` counts repairs.
const REPAIRS_SPAN_MS: u64 = 7 * DAY_MS;
/// Repairs that are remembered.
const KEPT_MAX: usize = 16;

/// What was done to a component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repairs {
    done: VecDeque<(TimeMs, DeviceAction)>,
}

impl Repairs {
    /// A repair was completed.
    pub fn complete(&mut self, now: TimeMs, action: DeviceAction) {
        if self.done.len() >= KEPT_MAX {
            self.done.pop_front();
        }
        self.done.push_back((now, action));
    }

    /// Completed within the last seven days.
    #[must_use]
    pub fn in_a_week(&self, now: TimeMs) -> usize {
        let is_recent = |(at, _): &&(TimeMs, DeviceAction)| now.since(*at) <= REPAIRS_SPAN_MS;
        self.done.iter().filter(is_recent).count()
    }

    /// Whether a component was repaired so often within a week that a person looks instead, and alone gives it back.
    #[must_use]
    pub fn is_worn_out(&self, now: TimeMs, patience: Patience) -> bool {
        self.in_a_week(now) >= patience.repairs_max as usize
    }

    /// What is done instead of a repair that was asked for: the next step of the ladder, if this one did not help.
    #[must_use]
    pub fn next(&self, now: TimeMs, wanted: DeviceAction, patience: Patience) -> DeviceAction {
        let reboots = self.done.iter().filter(|(at, action)| {
            *action == DeviceAction::Reboot && now.since(*at) <= REBOOTS_SPAN_MS
        });
        let is_repair = matches!(
            wanted,
            DeviceAction::Reset | DeviceAction::ResetIdle | DeviceAction::Reboot
        );
        let reboots_helped = wanted != DeviceAction::Reboot || reboots.count() < REBOOTS_MAX;
        if is_repair && (self.is_worn_out(now, patience) || !reboots_helped) {
            return DeviceAction::Inspect;
        }
        wanted
    }
}
