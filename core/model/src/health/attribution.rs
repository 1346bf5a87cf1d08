//! Attribution of an attempt's end: attributed component, confidence, charge and consequences.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::health::{Charge, Component};
use crate::named_enum;

/// Maximum number of evidence lines per attribution.
pub const EVIDENCE_LINES_MAX: usize = 8;

/// Confidence from which an end is attributed on its own evidence; below it, the history is consulted first.
pub const CERTAIN_PERMILLE: u16 = 700;

named_enum! {
    /// Attributed component class.
    Class {
        /// The user's program.
        User = "user",
        /// A library, an image or a driver release.
        Software = "software",
        /// A GPU.
        Gpu = "gpu",
        /// A host.
        Host = "host",
        /// A network adapter.
        Nic = "nic",
        /// A file system.
        Storage = "storage",
        /// The scheduler itself.
        Scheduler = "scheduler",
        /// Unknown.
        Unknown = "unknown",
        /// The site's configuration: nothing is broken, and an operator has to decide.
        Site = "site",
    }
}

named_enum! {
    /// Consequence for the job or the attributed component.
    Measure {
        /// Run again.
        Requeue = "requeue",
        /// Run again, but not on the attributed component.
        Avoid = "avoid",
        /// Not retried automatically.
        NoRetry = "no_retry",
        /// Run again with increasing delay.
        BackOff = "back_off",
        /// Run again once, on hosts where it has not failed.
        RetryElsewhere = "retry_elsewhere",
        /// Blocked until an active check has passed.
        BlockForCheck = "block_for_check",
        /// Checked once nothing runs there.
        CheckIdle = "check_idle",
        /// Restored from the checkpoint before the newest.
        PreviousCheckpoint = "previous_checkpoint",
    }
}

named_enum! {
    /// Attribution steps in the order in which they are tried.
    Step {
        /// The scheduler ended it.
        Scheduler = "scheduler",
        /// Its host is gone.
        HostGone = "host_gone",
        /// A component reports itself as broken.
        Hard = "hard_evidence",
        /// It failed in the same way elsewhere.
        Everywhere = "fails_everywhere",
        /// The end itself is conclusive.
        // Its name in stored states is older.
        #[serde(rename = "telling")]
        ConclusiveEnd = "telling_end",
        /// It hangs.
        Hang = "hang",
        /// Others failed on the same GPU, or with the same image.
        Pattern = "history",
        /// No step applied.
        Open = "open",
    }
}

/// Attribution of an end with confidence and consequences, as stored and reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribution {
    /// Attributed class.
    pub class: Class,
    /// Attributed component, if a single one is known.
    pub component: Option<Component>,
    /// Confidence, per mille.
    pub confidence_permille: u16,
    /// Evidence, at most `EVIDENCE_LINES_MAX` lines.
    pub evidence: Vec<String>,
    /// Budget that is charged.
    pub charge: Charge,
    /// Consequences.
    pub measures: Vec<Measure>,
    /// The step that decided.
    pub step: Step,
}

impl Attribution {
    /// Whether it is tentative: other failures are consulted first, and later ends are compared with it.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.confidence_permille < CERTAIN_PERMILLE && !matches!(self.class, Class::Scheduler)
    }

    /// Whether the infrastructure is charged because a component reports itself as broken, or is gone.
    #[must_use]
    pub const fn is_proven(&self) -> bool {
        matches!(self.step, Step::HostGone | Step::Hard)
    }

    /// Formats it with the display name of the attributed component, unless the class says enough.
    #[must_use]
    pub fn named(&self, component: Option<&str>) -> String {
        let class = self.class.name();
        let starts_with_class = |name: &str| name.split(' ').next() == Some(class);
        let what = match component {
            Some(name) if starts_with_class(name) => name.to_owned(),
            Some(name) => format!("{class} ({name})"),
            None => class.to_owned(),
        };
        let percent = self.confidence_permille / 10;
        let paid = match self.charge {
            Charge::User => "charged to the job",
            Charge::Infra => "charged to the infrastructure",
            Charge::None => "not charged",
        };
        format!("{what}, {percent} % sure, {paid}")
    }
}

impl fmt::Display for Attribution {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let component = self.component.as_ref().map(ToString::to_string);
        formatter.write_str(&self.named(component.as_deref()))
    }
}
