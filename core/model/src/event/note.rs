//! What people should know about health, by kind.

use crate::word_enum;

word_enum! {
    /// What kind of thing is to be known about health.
    HealthNote {
        /// People should look.
        Alert = "alert",
        /// A rail or an admin's word kept a rule from doing what it wanted.
        Refused = "refused",
        /// A rule keeps something off what still works, or does not any more.
        Hold = "hold",
        /// A repair is due.
        Repair = "repair",
        /// Many hosts went bad together, or that is over.
        Incident = "incident",
        /// A breaker closed or was reset.
        Breaker = "breaker",
        /// What a job computed may be wrong.
        Doubt = "doubt",
        /// The rules were replaced.
        Rules = "rules",
    }
}
