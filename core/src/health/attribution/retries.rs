//! Whether an attempt that ended badly is run again, when, and with which rights.

use super::{Attribution, Class, Measure};
use crate::health::{Charge, DAY_MS, MINUTE_MS, SECOND_MS};
use crate::time::TimeMs;

/// Failures of the infrastructure in a day without progress after which a job is held (Slurm's `max_batch_requeue`: 5).
const INFRA_PER_DAY_MAX: usize = 5;
/// Failures after which a job takes nobody's resources any more (a job at Meta requeued itself 35 times and caused 548
/// preemptions; the number is ours).
const PREEMPTING_FAILURES_MAX: usize = 3;
/// First wait, doubled by each further failure (Kubernetes' jobs: 10 s up to 6 min).
const FIRST_WAIT_MS: u64 = 10 * SECOND_MS;
const WAIT_MS_MAX: u64 = 6 * MINUTE_MS;
/// Retries of a failure that nobody can explain, if the job names none.
const UNKNOWN_RETRIES: u32 = 1;

/// What a job has behind it since it last saved anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Failures that it paid for, over its whole life.
    pub charged: u32,
    /// When it failed for the infrastructure, oldest first.
    pub infra: Vec<TimeMs>,
    /// Failures of any kind, this one not counted.
    pub failures: usize,
    /// Retries that the job itself allows; none if it says nothing.
    pub retries_max: Option<u32>,
}

/// What becomes of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It is run again.
    Again {
        /// Milliseconds from now.
        wait_ms: u64,
        /// Whether others may be preempted for it.
        may_preempt: bool,
        /// Whether one of its retries is used up.
        is_charged: bool,
    },
    /// It is held until a person looks: it gets nowhere, though that is not its own fault.
    Held(String),
    /// It has failed for good.
    Failed(String),
}

/// Decides on a retry.
#[must_use]
pub fn retry(found: &Attribution, spent: &Spent, now: TimeMs) -> Retry {
    let again = |is_charged: bool, waits: bool| Retry::Again {
        wait_ms: if waits { wait_ms(spent.failures) } else { 0 },
        may_preempt: spent.failures < PREEMPTING_FAILURES_MAX,
        is_charged,
    };
    if found.measures.is_empty() {
        return Retry::Failed("its end was asked for".to_owned());
    }
    if found.measures.contains(&Measure::NoRetry) {
        return Retry::Failed("it would fail again".to_owned());
    }
    match found.charge {
        Charge::None => again(false, false),
        Charge::Infra => {
            let recent = spent.infra.iter().filter(|at| now.since(**at) <= DAY_MS);
            let times = recent.count() + 1;
            if times > INFRA_PER_DAY_MAX {
                return Retry::Held(format!(
                    "the infrastructure failed it {times} times within a day, and it saved nothing in between (at most {INFRA_PER_DAY_MAX})"
                ));
            }
            again(false, times > 1)
        }
        Charge::User => {
            let by_default = match found.class {
                Class::Unknown => UNKNOWN_RETRIES,
                _ => 0,
            };
            let allowed = spent.retries_max.unwrap_or(by_default);
            if spent.charged >= allowed {
                return Retry::Failed(format!("it has had its {allowed} retries"));
            }
            again(true, true)
        }
    }
}

/// Milliseconds to wait after so many failures before this one.
fn wait_ms(failures: usize) -> u64 {
    let factor = 1u64 << failures.min(16);
    FIRST_WAIT_MS.saturating_mul(factor).min(WAIT_MS_MAX)
}

#[cfg(test)]
mod tests {
    use super::super::Step;
    use super::*;

    fn spent(failures: usize) -> Spent {
        Spent {
            failures,
            ..Spent::default()
        }
    }

    fn found(class: Class, confidence: u16) -> Attribution {
        Attribution::new(Step::Open, class, confidence)
    }

    #[test]
    fn the_infrastructure_never_costs_a_retry_but_not_for_ever() {
        let now = TimeMs(10 * DAY_MS);
        let infra = found(Class::Gpu, 950);
        let mut past = Spent {
            retries_max: Some(0),
            ..spent(0)
        };
        for times in 0..5 {
            let Retry::Again {
                is_charged,
                wait_ms,
                ..
            } = retry(&infra, &past, now)
            else {
                panic!("the {times}th is run again");
            };
            assert_eq!((is_charged, wait_ms == 0), (false, times == 0));
            past.infra.push(now);
        }
        let held = retry(&infra, &past, now);
        let reason = "the infrastructure failed it 6 times within a day, and it saved nothing in between (at most 5)";
        assert_eq!(held, Retry::Held(reason.to_owned()));
        // A day later it is tried again.
        let later = retry(&infra, &past, now.after(DAY_MS + 1));
        assert!(matches!(later, Retry::Again { .. }));
    }

    #[test]
    fn a_users_failure_costs_what_the_job_allows() {
        let now = TimeMs(0);
        let user = found(Class::User, 900);
        assert!(matches!(retry(&user, &spent(0), now), Retry::Failed(_)));
        let unknown = found(Class::Unknown, 200);
        assert!(matches!(
            retry(&unknown, &spent(0), now),
            Retry::Again {
                is_charged: true,
                ..
            }
        ));
        let paid = Spent {
            charged: 1,
            ..spent(1)
        };
        assert!(matches!(retry(&unknown, &paid, now), Retry::Failed(_)));
        let allowed = Spent {
            retries_max: Some(3),
            ..paid
        };
        assert!(matches!(
            retry(&user, &allowed, now),
            Retry::Again {
                is_charged: true,
                ..
            }
        ));
        let hopeless = user.then(&[Measure::NoRetry]);
        assert!(matches!(retry(&hopeless, &allowed, now), Retry::Failed(_)));
    }

    #[test]
    fn waits_double_and_the_right_to_preempt_is_lost() {
        let unknown = found(Class::Unknown, 200);
        let told = |failures| {
            let past = Spent {
                retries_max: Some(100),
                ..spent(failures)
            };
            match retry(&unknown, &past, TimeMs(0)) {
                Retry::Again {
                    wait_ms,
                    may_preempt,
                    ..
                } => (wait_ms / SECOND_MS, may_preempt),
                other => panic!("{other:?}"),
            }
        };
        let all: Vec<(u64, bool)> = [0, 1, 2, 3, 5, 6, 90].map(told).to_vec();
        let expected = [
            (10, true),
            (20, true),
            (40, true),
            (80, false),
            (320, false),
            (360, false),
            (360, false),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn what_the_scheduler_ended_is_run_again_at_once() {
        let ours = found(Class::Scheduler, 1_000);
        let again = Retry::Again {
            wait_ms: 0,
            may_preempt: true,
            is_charged: false,
        };
        assert_eq!(retry(&ours, &spent(0), TimeMs(0)), again);
        let cancelled = found(Class::Scheduler, 1_000).then(&[]);
        assert!(matches!(
            retry(&cancelled, &spent(0), TimeMs(0)),
            Retry::Failed(_)
        ));
    }
}
