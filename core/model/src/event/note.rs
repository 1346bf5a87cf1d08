//! Kinds of notes about health.

use crate::named_enum;

named_enum! {
    /// Kind of a note about health.
    HealthNote {
        /// Operators should look.
        Alert = "alert",
        /// A guard rail or an admin's block kept a rule from acting.
        Refused = "refused",
        /// A rule restricts placement on a component that still works, or lifts the restriction.
        Hold = "hold",
        /// A repair is due.
        Repair = "repair",
        /// Many hosts failed together, or that is over.
        Incident = "incident",
        /// A breaker tripped or was reset.
        Breaker = "breaker",
        /// Results of a job may be wrong.
        Doubt = "doubt",
        /// The rules were replaced.
        Rules = "rules",
    }
}
