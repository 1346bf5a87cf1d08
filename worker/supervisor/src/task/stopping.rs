//! A stop request in progress, with the notifications still to be sent before the task is killed.
//! Their order: the flag file, a line to every subscribed connection, the signal of the job's choice,
//! SIGTERM; at the deadline the supervisor kills what is left. Between the request and SIGTERM a task that
//! listens has time to save; a checkpoint that is completed in that time ends it.

use std::time::SystemTime;

use muster_model::spec::StopWarning;
use muster_model::time::MonotonicMs;
use rustix::process::Signal;

use crate::lease::clock::{file_clock, is_stamped_since, wall_clock};
use crate::limits::{PREEMPT_FLAG_MS_MAX, TERMINATE_LEAD_MS_MAX};
use crate::link::protocol::PreemptFlag;
use crate::process::process_tree::ProcessTree;
use crate::task::directory::TaskDirectory;
use crate::task::flag::FlagFile;

/// A stop request in progress.
#[derive(Debug)]
pub(crate) struct Stopping {
    notice: PreemptFlag,
    /// Time of the request, by the file system's clock.
    asked_at: SystemTime,
    /// The flag file that all signals wait for.
    flag: Option<FlagFile>,
    plan: Plan,
}

impl Stopping {
    /// Asks a task to stop. `listens`: the task or its job declared that it wants to be asked before it is
    /// terminated.
    pub(crate) fn begin(
        directory: &TaskDirectory,
        reason: String,
        grace_ms: u64,
        now: MonotonicMs,
        warning: Option<StopWarning>,
        listens: bool,
    ) -> Self {
        // Taken before the flag file is written: a save that it triggers is later.
        let asked_at = file_clock();
        let notice = PreemptFlag {
            reason,
            deadline_unix_ms: wall_clock().after(grace_ms).0,
            grace_ms,
        };
        let path = directory.control().join("preempt");
        let until = now.after(PREEMPT_FLAG_MS_MAX.min(grace_ms / 2));
        // If the write cannot even begin (logging that would touch the disk as well), the other notifications
        // must suffice.
        let flag = FlagFile::start(path, notice.clone(), until).ok();
        Self {
            notice,
            asked_at,
            flag,
            plan: Plan::new(now, grace_ms, warning, listens),
        }
    }

    /// Contents of the flag file.
    pub(crate) const fn notice(&self) -> &PreemptFlag {
        &self.notice
    }

    /// Descriptor to poll until the flag file is written.
    pub(crate) const fn flag(&self) -> Option<&FlagFile> {
        self.flag.as_ref()
    }

    /// Whether the task had been asked when a file with this time was written.
    pub(crate) fn began_before(&self, written_at: SystemTime) -> bool {
        is_stamped_since(written_at, self.asked_at)
    }

    /// Notes that the task has nothing more to save.
    pub(crate) fn saved(&mut self, now: MonotonicMs) {
        self.plan.saved(now);
    }

    /// Shortens the grace on a later request.
    pub(crate) fn shorten(&mut self, now: MonotonicMs, grace_ms: u64) {
        self.plan.shorten(now, grace_ms);
    }

    /// When [`Self::act`] is needed next.
    pub(crate) fn next_due(&self) -> Option<MonotonicMs> {
        match &self.flag {
            Some(flag) => Some(flag.until()),
            None => self.plan.next_due(),
        }
    }

    /// Sends the signals that are due.
    pub(crate) fn act(&mut self, now: MonotonicMs, tree: &ProcessTree) {
        self.flag.take_if(|flag| flag.is_settled(now));
        if self.flag.is_some() {
            return;
        }
        for step in self.plan.due(now) {
            match step {
                Step::Warn(warning) => warn(tree, warning),
                Step::Terminate => tree.terminate(),
            }
        }
    }
}

/// Sends the signal of the job's choice.
fn warn(tree: &ProcessTree, warning: StopWarning) {
    // `spec::validate` admits only real signals; an unknown one must not prevent the rest.
    let Some(signal) = Signal::from_named_raw(warning.signal) else {
        return;
    };
    tree.signal(signal, warning.to_all);
}

/// Schedule of the signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    warn: Option<(MonotonicMs, StopWarning)>,
    terminate_at: Option<MonotonicMs>,
}

/// A signal that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Warn(StopWarning),
    Terminate,
}

impl Plan {
    fn new(now: MonotonicMs, grace_ms: u64, warning: Option<StopWarning>, listens: bool) -> Self {
        let warn = warning.map(|warning| {
            let lead_ms = warning.lead_ms.unwrap_or(grace_ms).min(grace_ms);
            (now.after(grace_ms - lead_ms), warning)
        });
        let lead_ms = terminate_lead_ms(grace_ms, warning);
        let wait_ms = if listens || warning.is_some() {
            grace_ms - lead_ms
        } else {
            0
        };
        Self {
            warn,
            terminate_at: Some(now.after(wait_ms)),
        }
    }

    fn saved(&mut self, now: MonotonicMs) {
        if let Some(at) = &mut self.terminate_at {
            *at = (*at).min(now);
        }
        // A task that has saved need not be asked to.
        self.warn = None;
    }

    fn shorten(&mut self, now: MonotonicMs, grace_ms: u64) {
        let Some(at) = &mut self.terminate_at else {
            return;
        };
        let warning = self.warn.map(|(_, warning)| warning);
        let latest = now.after(grace_ms - terminate_lead_ms(grace_ms, warning));
        *at = (*at).min(latest);
        if let Some((at, warning)) = &mut self.warn {
            let lead_ms = warning.lead_ms.unwrap_or(grace_ms).min(grace_ms);
            *at = (*at).min(now.after(grace_ms - lead_ms));
        }
    }

    fn next_due(&self) -> Option<MonotonicMs> {
        let warn_at = self.warn.map(|(at, _)| at);
        warn_at.into_iter().chain(self.terminate_at).min()
    }

    fn due(&mut self, now: MonotonicMs) -> Vec<Step> {
        let warn = self
            .warn
            .take_if(|(at, _)| *at <= now)
            .map(|(_, warning)| Step::Warn(warning));
        let terminate = self
            .terminate_at
            .take_if(|at| *at <= now)
            .map(|_| Step::Terminate);
        warn.into_iter().chain(terminate).collect()
    }
}

/// Milliseconds between SIGTERM and SIGKILL of a task that was asked before.
pub(crate) fn terminate_lead_ms(grace_ms: u64, warning: Option<StopWarning>) -> u64 {
    let lead_ms = warning.and_then(|warning| warning.lead_ms);
    let after_warning = lead_ms.map_or(u64::MAX, |lead_ms| lead_ms / 2);
    (grace_ms / 4).min(TERMINATE_LEAD_MS_MAX).min(after_warning)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: MonotonicMs = MonotonicMs(1_000);

    fn usr1(lead_ms: Option<u64>) -> StopWarning {
        StopWarning {
            signal: 10,
            to_all: false,
            lead_ms,
        }
    }

    #[test]
    fn a_task_that_watches_no_stop_receives_sigterm_at_once() {
        let mut plan = Plan::new(START, 30_000, None, false);
        assert_eq!(plan.due(START), [Step::Terminate]);
        assert_eq!(plan.next_due(), None);
    }

    #[test]
    fn a_task_that_watches_for_a_stop_has_time_until_it_has_saved() {
        let mut plan = Plan::new(START, 30_000, None, true);
        assert_eq!(plan.due(START.after(22_499)), []);
        assert_eq!(plan.next_due(), Some(START.after(22_500)));
        plan.saved(START.after(3_000));
        assert_eq!(plan.due(START.after(3_000)), [Step::Terminate]);
    }

    #[test]
    fn the_jobs_signal_comes_its_lead_before_the_end_and_sigterm_after_it() {
        let warning = usr1(Some(60_000));
        let mut plan = Plan::new(START, 120_000, Some(warning), false);
        assert_eq!(plan.next_due(), Some(START.after(60_000)));
        assert_eq!(plan.due(START.after(60_000)), [Step::Warn(warning)]);
        assert_eq!(plan.due(START.after(109_999)), []);
        assert_eq!(plan.due(START.after(110_000)), [Step::Terminate]);
        // Without a lead at once; with a very short one, still before SIGTERM.
        assert_eq!(
            Plan::new(START, 8_000, Some(usr1(None)), false).next_due(),
            Some(START)
        );
        let short = usr1(Some(1_000));
        let mut plan = Plan::new(START, 8_000, Some(short), false);
        assert_eq!(plan.due(START.after(7_000)), [Step::Warn(short)]);
        assert_eq!(plan.due(START.after(7_500)), [Step::Terminate]);
    }

    #[test]
    fn a_task_that_has_saved_is_not_asked_again() {
        let mut plan = Plan::new(START, 120_000, Some(usr1(Some(60_000))), false);
        plan.saved(START.after(1));
        assert_eq!(plan.due(START.after(1)), [Step::Terminate]);
        assert_eq!(plan.due(START.after(60_000)), []);
    }

    #[test]
    fn a_shorter_grace_brings_everything_forward() {
        let warning = usr1(Some(60_000));
        let mut plan = Plan::new(START, 120_000, Some(warning), false);
        plan.shorten(START.after(1_000), 4_000);
        assert_eq!(plan.due(START.after(1_000)), [Step::Warn(warning)]);
        assert_eq!(plan.due(START.after(4_000)), [Step::Terminate]);
    }
}
