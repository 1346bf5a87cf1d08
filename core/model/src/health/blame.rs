//! The attribution of an attempt's end: culprit, confidence, charge and consequences.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::health::{Charge, Component};
use crate::word_enum;

/// Lines of evidence that an attribution carries.
pub const EVIDENCE_LINES_MAX: usize = 8;

/// From here on an end speaks for itself; below, the history is asked first.
pub const CERTAIN_PERMILLE: u16 = 700;

word_enum! {
    /// Whose fault it was.
    Class {
        /// The program's.
        User = "user",
        /// A library's, an image's or a driver release's.
        Software = "software",
        /// A GPU's.
        Gpu = "gpu",
        /// A host's.
        Host = "host",
        /// A network adapter's.
        Nic = "nic",
        /// A file system's.
        Storage = "storage",
        /// The scheduler's own doing.
        Scheduler = "scheduler",
        /// Nobody knows.
        Unknown = "unknown",
        /// The site's configuration: nothing is broken, and somebody has to decide.
        Site = "site",
    }
}

word_enum! {
    /// What follows for the job and for what is blamed.
    Measure {
        /// Run again.
        Requeue = "requeue",
        /// Run again, and not on what is blamed.
        Avoid = "avoid",
        /// Not run again by itself.
        NoRetry = "no_retry",
        /// Run again later, ever more so.
        BackOff = "back_off",
        /// Run again once, on hosts that it has not failed on.
        RetryElsewhere = "retry_elsewhere",
        /// Blocked until an active check has passed.
        BlockForCheck = "block_for_check",
        /// Checked once nothing runs there.
        CheckIdle = "check_idle",
        /// Begun from the checkpoint before the newest.
        PreviousCheckpoint = "previous_checkpoint",
    }
}

word_enum! {
    /// Which question decided, in their order.
    Step {
        /// Did the scheduler end it?
        Scheduler = "scheduler",
        /// Is its host gone?
        HostGone = "host_gone",
        /// Does a component say that it is broken?
        Hard = "hard_evidence",
        /// Has it failed the same way elsewhere?
        Everywhere = "fails_everywhere",
        /// Does the end itself tell?
        Telling = "telling_end",
        /// Does it hang?
        Hang = "hang",
        /// Did others fail on the same GPU, or with the same image?
        Pattern = "history",
        /// Nothing tells.
        Open = "open",
    }
}

/// Whose fault an end was, how sure that is, and what follows: what is kept of it, and told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blame {
    /// Whose fault.
    pub class: Class,
    /// Which one, if it is one.
    pub component: Option<Component>,
    /// How sure, per mille.
    pub confidence_permille: u16,
    /// What it rests on, at most `EVIDENCE_LINES_MAX` lines.
    pub evidence: Vec<String>,
    /// Who pays.
    pub charge: Charge,
    /// What follows.
    pub measures: Vec<Measure>,
    /// Which question decided.
    pub step: Step,
}

impl Blame {
    /// Whether others that failed are asked before this is believed, and later ends are compared with it.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.confidence_permille < CERTAIN_PERMILLE && !matches!(self.class, Class::Scheduler)
    }

    /// Whether the infrastructure pays because a component says itself that it is broken, or is gone.
    #[must_use]
    pub const fn is_proven(&self) -> bool {
        matches!(self.step, Step::HostGone | Step::Hard)
    }

    /// In words, with what people call the component that is blamed; one that says its class itself is enough.
    #[must_use]
    pub fn named(&self, component: Option<&str>) -> String {
        let class = self.class.word();
        let says_class = |name: &str| name.split(' ').next() == Some(class);
        let what = match component {
            Some(name) if says_class(name) => name.to_owned(),
            Some(name) => format!("{class} ({name})"),
            None => class.to_owned(),
        };
        let percent = self.confidence_permille / 10;
        let paid = match self.charge {
            Charge::User => "charged to the job",
            Charge::Infra => "charged to the infrastructure",
            Charge::None => "charged to nobody",
        };
        format!("{what}, {percent} % sure, {paid}")
    }
}

impl fmt::Display for Blame {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let component = self.component.as_ref().map(ToString::to_string);
        formatter.write_str(&self.named(component.as_deref()))
    }
}
