//! I33: nobody is blamed, and nobody charged, for an account that a site has not made.

use muster_core::command::NO_ACCOUNT;
use muster_core::event::EventKind;
use muster_core::health::Charge;
use muster_core::health::attribution::Class;
use muster_core::ids::{AttemptEpoch, JobId};

/// An attempt ended because an account was missing, and somebody was blamed or charged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "attempt {epoch} of job {job} lacked an account, and it is blamed on {class}, at {charge:?}'s cost"
)]
pub struct FalseBlame {
    /// Whose.
    pub job: JobId,
    /// The attempt.
    pub epoch: AttemptEpoch,
    /// Whose fault it is said to be.
    pub class: Class,
    /// Who is said to pay.
    pub charge: Charge,
}

/// Whether an event blames somebody for a missing account.
#[must_use]
pub fn false_blame(kind: &EventKind) -> Option<FalseBlame> {
    let EventKind::AttemptEnded {
        job, epoch, blame, ..
    } = kind
    else {
        return None;
    };
    let blame = blame.as_ref()?;
    let is_missing = |line: &String| line.starts_with(NO_ACCOUNT);
    let is_just = (blame.class, blame.charge) == (Class::Site, Charge::None);
    (blame.evidence.iter().any(is_missing) && !is_just).then_some(FalseBlame {
        job: *job,
        epoch: *epoch,
        class: blame.class,
        charge: blame.charge,
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;

    use muster_core::testing::{Cluster, single, start_error};

    use super::*;

    #[test]
    fn a_host_that_is_blamed_for_a_missing_account_is_noticed() {
        let mut cluster = Cluster::with_hosts(1, 2);
        let job = cluster.submit(single("train", 1, 1));
        cluster.place_all(job);
        let revision = cluster
            .exit(job, 0, start_error("NO_ACCOUNT: nobody knows ada"))
            .revision;
        let mut all = cluster.state.events.iter();
        let (_, told) = all.find(|(at, _)| *at == revision).unwrap();
        let is_end = |kind: &EventKind| matches!(kind, EventKind::AttemptEnded { .. });
        let end = told.iter().find(|event| is_end(&event.kind)).unwrap();
        let mut end = end.kind.clone();
        assert_eq!(false_blame(&end), None);
        let EventKind::AttemptEnded {
            blame: Some(blame), ..
        } = &mut end
        else {
            unreachable!("it is blamed on the site");
        };
        Arc::make_mut(blame).charge = Charge::Infra;
        assert_eq!(false_blame(&end).unwrap().charge, Charge::Infra);
    }
}
