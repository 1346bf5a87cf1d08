//! Wakes the supervisor when its task's lease ends, even from suspend.
//! `poll` counts its timeout on a clock that stops while the machine is suspended. A timer on the clock that
//! includes suspend time fires at once on resume and, where this process has the permission, wakes the
//! machine.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use muster_model::time::MonotonicMs;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::lease::clock::LeaseClock;

/// A timer on `CLOCK_BOOTTIME`. Not required: without it the supervisor looks at its clock every `LEASE_TICK`.
#[derive(Debug)]
pub(crate) struct LeaseAlarm {
    timer: OwnedFd,
    set_for: Option<MonotonicMs>,
}

impl LeaseAlarm {
    /// Creates a disarmed alarm; `None` if the kernel provides no such timer.
    pub(crate) fn new() -> Option<Self> {
        let create = |clock| timerfd_create(clock, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK);
        // Waking the machine needs CAP_WAKE_ALARM.
        let timer = create(TimerfdClockId::BoottimeAlarm).or_else(|error| match error {
            Errno::PERM | Errno::INVAL | Errno::NOTSUP => create(TimerfdClockId::Boottime),
            other => Err(other),
        });
        Some(Self {
            timer: timer.ok()?,
            set_for: None,
        })
    }

    /// Arms the alarm for an instant of the lease clock; an instant in the past fires at once.
    pub(crate) fn set(&mut self, instant: MonotonicMs, clock: LeaseClock) {
        if self.set_for == Some(instant) {
            return;
        }
        let boottime_ms = clock.to_boottime_ms(instant);
        let at = Timespec {
            tv_sec: i64::try_from(boottime_ms / 1_000).unwrap_or(i64::MAX),
            // A time of zero would disarm it.
            tv_nsec: i64::try_from(boottime_ms % 1_000 * 1_000_000)
                .unwrap_or(0)
                .max(1),
        };
        let once = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: at,
        };
        // This cannot fail: the descriptor is a timer and the time is valid. If it did, the ticks would
        // suffice.
        if timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once).is_ok() {
            self.set_for = Some(instant);
        }
    }

    /// Acknowledges the alarm: it wakes the supervisor no more until it is set again.
    pub(crate) fn acknowledge(&self) {
        let mut count = [0u8; 8];
        // The only error is that it has not fired.
        let _ = rustix::io::read(&self.timer, &mut count);
    }
}

impl AsFd for LeaseAlarm {
    /// Readable once the alarm has fired.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn rings(alarm: &LeaseAlarm, timeout_ms: i64) -> bool {
        let mut polled = [PollFd::new(alarm, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: timeout_ms / 1_000,
            tv_nsec: timeout_ms % 1_000 * 1_000_000,
        };
        poll(&mut polled, Some(&timeout)).unwrap() == 1
    }

    #[test]
    fn an_alarm_fires_at_its_time_and_can_be_postponed() {
        let mut alarm = LeaseAlarm::new().unwrap();
        assert!(!rings(&alarm, 0));
        let clock = LeaseClock::start();
        let due = clock.now().after(50);
        alarm.set(due, clock);
        assert!(rings(&alarm, 20_000));
        assert!(clock.now().after(1) >= due);
        alarm.acknowledge();
        assert!(!rings(&alarm, 0));
        // The lease was extended.
        alarm.set(clock.now().after(600_000), clock);
        assert!(!rings(&alarm, 0));
        // An instant that has passed when the alarm is set.
        alarm.set(MonotonicMs(1), clock);
        assert!(rings(&alarm, 20_000));
    }
}
