//! Whether a task runs or stands still.

use crate::exec::Execs;
use crate::family::Family;

/// How the task's processes stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stance {
    /// They run.
    Goes,
    /// They stand still where they are.
    Still,
    /// They stood still, and are to be let go on.
    Rises,
}

impl Stance {
    /// Lets them go on if they stand still.
    pub(super) fn resume(&mut self) {
        if *self == Self::Still {
            *self = Self::Rises;
        }
    }

    /// Holds them as they should stand, but for commands beside them; what cannot be done now is done at the next look.
    pub(super) fn hold(&mut self, family: &Family, execs: &Execs) {
        match self {
            Self::Goes => {}
            Self::Still => {
                execs.knowing_all(|beside| family.suspend(beside));
            }
            Self::Rises => {
                if execs.knowing_all(|beside| family.resume(beside)) {
                    *self = Self::Goes;
                }
            }
        }
    }
}
