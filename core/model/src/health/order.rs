//! Repairs and checks that the leader orders from workers.

use serde::{Deserialize, Serialize};

use crate::health::Component;
use crate::time::TimeMs;
use crate::word_enum;

word_enum! {
    /// What becomes of the GPU.
    DeviceAction {
        /// Nothing.
        None = "none",
        /// The services that a rule is about are started again; of hosts alone.
        RestartService = "restart_service",
        /// Reset once nothing runs on it.
        ResetIdle = "reset_idle",
        /// Reset.
        Reset = "reset",
        /// The host is rebooted.
        Reboot = "reboot",
        /// An active check.
        Check = "check",
        /// A person looks.
        Inspect = "inspect",
        /// Back to the vendor.
        Rma = "rma",
        /// The registers tell.
        Decode = "decode",
        /// The text tells.
        Text = "text",
    }
}

/// A repair or a check that a worker is to carry out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// On what.
    pub component: Component,
    /// What: `Check`, `Reset`, `Reboot` or `RestartService`.
    pub action: DeviceAction,
    /// When it was given: tells it from one that was given before.
    pub since: TimeMs,
    /// The rule whose services are to be started again; empty for anything else.
    #[serde(default)]
    pub rule: String,
    /// Whether a check is to take as long as it needs: of what fails again and again a quick one has said enough.
    #[serde(default)]
    pub is_thorough: bool,
}

word_enum! {
    /// What becomes of the repair or check of a component that is out of placement; which of the two follows from its phase.
    WorkStep {
        /// It begins.
        Began = "begun",
        /// It did what it should: the repair is done, the check is passed.
        Passed = "passed",
        /// It did not.
        Failed = "failed",
    }
}
