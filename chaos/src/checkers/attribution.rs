//! Checker for I33: a missing user account on a host is neither attributed to a component nor charged to
//! anyone.

use muster_model::command::NO_ACCOUNT;
use muster_model::event::EventKind;
use muster_model::health::{Charge, Class};
use muster_model::ids::{AttemptEpoch, JobId};

/// An attempt ended because an account was missing, and the failure was attributed or charged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "attempt {epoch} of job {job} lacked an account, but is attributed to {class} and charged to {charge:?}"
)]
pub struct FalseAttribution {
    /// The job.
    pub job: JobId,
    /// The attempt.
    pub epoch: AttemptEpoch,
    /// Class of the attributed component.
    pub class: Class,
    /// The account charged for the lost time.
    pub charge: Charge,
}

/// Returns the violation if an event attributes or charges a missing account.
#[must_use]
pub fn false_attribution(kind: &EventKind) -> Option<FalseAttribution> {
    let EventKind::AttemptEnded {
        job,
        epoch,
        attribution,
        ..
    } = kind
    else {
        return None;
    };
    let attribution = attribution.as_ref()?;
    let is_missing = |line: &String| line.starts_with(NO_ACCOUNT);
    let is_just = (attribution.class, attribution.charge) == (Class::Site, Charge::None);
    (attribution.evidence.iter().any(is_missing) && !is_just).then_some(FalseAttribution {
        job: *job,
        epoch: *epoch,
        class: attribution.class,
        charge: attribution.charge,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use muster_model::health::{Attribution, Step};
    use muster_model::ids::UnitIndex;

    use super::*;

    fn attributed_to(class: Class, charge: Charge, evidence: &str) -> EventKind {
        EventKind::AttemptEnded {
            job: JobId(3),
            unit: UnitIndex(0),
            epoch: AttemptEpoch(7),
            hosts: Vec::new(),
            detail: String::new(),
            attribution: Some(Arc::new(Attribution {
                class,
                component: None,
                confidence_permille: 1_000,
                evidence: vec![evidence.to_owned()],
                charge,
                measures: Vec::new(),
                step: Step::ConclusiveEnd,
            })),
        }
    }

    #[test]
    fn a_host_that_is_blamed_for_a_missing_account_is_noticed() {
        let missing = "NO_ACCOUNT: unknown user ada";
        let of_host = attributed_to(Class::Host, Charge::Infra, missing);
        let expected = FalseAttribution {
            job: JobId(3),
            epoch: AttemptEpoch(7),
            class: Class::Host,
            charge: Charge::Infra,
        };
        assert_eq!(false_attribution(&of_host), Some(expected));
        let of_site = attributed_to(Class::Site, Charge::None, missing);
        assert_eq!(false_attribution(&of_site), None);
        let of_other = attributed_to(Class::Host, Charge::Infra, "no such program");
        assert_eq!(false_attribution(&of_other), None);
    }
}
