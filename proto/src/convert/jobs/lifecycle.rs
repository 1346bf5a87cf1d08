//! Phases and other plain enumerations.

use muster_model::command::{HostHealth, ReplicaMembership};
use muster_model::desired::RestartReason;
use muster_model::lifecycle::{JobPhase, TaskPhase, UnitPhase};
use muster_model::spec::SuspendMode;

use crate::field::InvalidField;
use crate::v1;

/// Generates conversions between a core enumeration without data and its wire twin of the same variant
/// names; `Unspecified` is rejected.
macro_rules! twins {
    ($name:ident { $($variant:ident),+ $(,)? }) => {
        impl From<$name> for v1::$name {
            fn from(value: $name) -> Self {
                match value {
                    $($name::$variant => Self::$variant,)+
                }
            }
        }

        impl TryFrom<v1::$name> for $name {
            type Error = InvalidField;

            fn try_from(value: v1::$name) -> Result<Self, InvalidField> {
                match value {
                    v1::$name::Unspecified => Err(InvalidField::new("", "must be specified")),
                    $(v1::$name::$variant => Ok(Self::$variant),)+
                }
            }
        }
    };
}

twins!(JobPhase {
    Queued,
    Running,
    Cancelling,
    Succeeded,
    Failed,
    Cancelled,
});

twins!(UnitPhase {
    Waiting,
    Placed,
    Running,
    Stopping,
    Succeeded,
    Failed,
    Cancelled,
});

twins!(TaskPhase {
    Assigned,
    Running,
    Exited,
    Gone,
    Fenced,
    Prepared,
});

twins!(RestartReason {
    First,
    Preempt,
    Infra,
    User,
    Admin,
});

twins!(HostHealth { Up, Suspect, Lost });

twins!(ReplicaMembership {
    Learner,
    Voter,
    Removed,
});

twins!(SuspendMode { Keep, Release });
