//! Repairs and checks that the leader orders from workers.

use serde::{Deserialize, Serialize};

use crate::health::Component;
use crate::named_enum;
use crate::time::TimeMs;

named_enum! {
    /// Device action of a repair or check.
    DeviceAction {
        /// No action.
        None = "none",
        /// Restart of a rule's services; hosts only.
        RestartService = "restart_service",
        /// Reset once nothing runs on it.
        ResetIdle = "reset_idle",
        /// Immediate reset.
        Reset = "reset",
        /// Reboot of the host.
        Reboot = "reboot",
        /// An active check.
        Check = "check",
        /// Inspection by an operator.
        Inspect = "inspect",
        /// Return to the vendor.
        Rma = "rma",
        /// Determined by decoding the registers.
        Decode = "decode",
        /// Determined by the text.
        Text = "text",
    }
}

/// A repair or a check for a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The component.
    pub component: Component,
    /// `Check`, `Reset`, `Reboot` or `RestartService`.
    pub action: DeviceAction,
    /// Time of the order; distinguishes it from earlier ones.
    pub since: TimeMs,
    /// Rule whose services are restarted; empty for other actions.
    #[serde(default)]
    pub rule: String,
    /// Whether a check runs without a time limit: for repeated failures a quick check is not enough.
    #[serde(default)]
    pub is_thorough: bool,
}

named_enum! {
    /// Stage of a repair or check of a component out of placement; the component's phase says which of the
    /// two it is.
    WorkStep {
        /// It started.
        Began = "begun",
        /// It succeeded: the repair is done, the check passed.
        Passed = "passed",
        /// It failed.
        Failed = "failed",
    }
}
