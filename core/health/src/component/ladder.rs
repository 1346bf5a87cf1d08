//! Escalation ladder of repairs: a repair that did not help is not repeated forever.

use std::collections::VecDeque;

use muster_model::health::DeviceAction;
use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};

use crate::component::RecoveryLimits;

/// Repairs remembered per component: the newest ones.
pub const REPAIRS_KEPT_MAX: u32 = 16;

/// Repairs of a component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repairs {
    done: VecDeque<(TimeMs, DeviceAction)>,
}

impl Repairs {
    /// Records a completed repair.
    pub fn complete(&mut self, now: TimeMs, action: DeviceAction) {
        if self.done.len() >= REPAIRS_KEPT_MAX as usize {
            self.done.pop_front();
        }
        self.done.push_back((now, action));
    }

    /// Whether a component was repaired so often recently that an operator must look, and only an operator
    /// can unblock it.
    #[must_use]
    pub fn exceeds_repair_limit(&self, now: TimeMs, recovery_limits: RecoveryLimits) -> bool {
        let is_recent =
            |(at, _): &&(TimeMs, DeviceAction)| now.since(*at) <= recovery_limits.repairs_span_ms;
        self.done.iter().filter(is_recent).count() >= recovery_limits.repairs_max as usize
    }

    /// Repair to carry out instead of the wanted one: the next step of the ladder, if this one did not help.
    #[must_use]
    pub fn next(
        &self,
        now: TimeMs,
        wanted: DeviceAction,
        recovery_limits: RecoveryLimits,
    ) -> DeviceAction {
        let reboots = self.done.iter().filter(|(at, action)| {
            *action == DeviceAction::Reboot && now.since(*at) <= recovery_limits.reboots_span_ms
        });
        let is_repair = matches!(
            wanted,
            DeviceAction::Reset | DeviceAction::ResetIdle | DeviceAction::Reboot
        );
        let reboots_helped = wanted != DeviceAction::Reboot
            || reboots.count() < recovery_limits.reboots_max as usize;
        if is_repair && (self.exceeds_repair_limit(now, recovery_limits) || !reboots_helped) {
            return DeviceAction::Inspect;
        }
        wanted
    }
}
