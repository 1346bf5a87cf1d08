//! The clock that leases run on.
//! `CLOCK_MONOTONIC` stops in suspend and is slewed by NTP; neither may lengthen a lease. So an instant here
//! advances by the larger advance of `CLOCK_BOOTTIME` (includes suspend) and `CLOCK_MONOTONIC_RAW` (never
//! slewed).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muster_model::time::{MonotonicMs, TimeMs};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Coarsest timestamp resolution of file systems.
const COARSEST_STAMP: Duration = Duration::from_secs(1);

/// Both clocks at one moment, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    boottime_ms: u64,
    raw_ms: u64,
}

impl Reading {
    fn now() -> Self {
        Self {
            boottime_ms: boottime_ms(),
            raw_ms: milliseconds(clock_gettime(ClockId::MonotonicRaw)),
        }
    }
}

/// A process's lease clock; its instants are meaningless to other processes, see
/// [`LeaseClock::to_boottime_ms`].
#[derive(Clone, Copy, Debug)]
pub struct LeaseClock {
    base: Reading,
}

impl LeaseClock {
    /// Creates a clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        Self {
            base: Reading::now(),
        }
    }

    /// The present instant.
    #[must_use]
    pub fn now(&self) -> MonotonicMs {
        MonotonicMs(advanced(self.base, Reading::now()))
    }

    /// Converts an instant to an absolute `CLOCK_BOOTTIME` time, which other processes understand.
    #[must_use]
    pub fn to_boottime_ms(self, instant: MonotonicMs) -> u64 {
        translated(instant.0, self.now().0, boottime_ms())
    }

    /// Converts an absolute `CLOCK_BOOTTIME` time to an instant of this clock, by its distance from now.
    #[must_use]
    pub fn at_boottime_ms(self, time_ms: u64) -> MonotonicMs {
        MonotonicMs(translated(time_ms, boottime_ms(), self.now().0))
    }
}

/// Milliseconds since the kernel booted, suspend included.
#[must_use]
pub fn boottime_ms() -> u64 {
    milliseconds(clock_gettime(ClockId::Boottime))
}

/// The wall clock as this host's file systems use it for timestamps: as of the kernel's last tick.
pub(crate) fn file_clock() -> SystemTime {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or(0);
    UNIX_EPOCH + Duration::new(seconds, nanoseconds)
}

/// Whether a file with this timestamp was written at or after an instant of [`file_clock`], within the
/// resolution of its file system: one with whole seconds stamps with the start of the current second. A write
/// less than one resolution step before the instant may count as later.
pub(crate) fn is_stamped_since(stamp: SystemTime, instant: SystemTime) -> bool {
    let since_epoch = stamp.duration_since(UNIX_EPOCH).unwrap_or_default();
    match since_epoch.subsec_nanos() {
        0 => stamp + COARSEST_STAMP > instant,
        _ => stamp >= instant,
    }
}

/// The wall clock, for display and files only, never for a decision.
#[must_use]
pub fn wall_clock() -> TimeMs {
    TimeMs(milliseconds(clock_gettime(ClockId::Realtime)))
}

fn advanced(base: Reading, now: Reading) -> u64 {
    let boottime = now.boottime_ms.saturating_sub(base.boottime_ms);
    let raw = now.raw_ms.saturating_sub(base.raw_ms);
    base.boottime_ms.saturating_add(boottime.max(raw))
}

/// Converts an instant between clocks by its distance from the present.
const fn translated(instant: u64, now_here: u64, now_there: u64) -> u64 {
    if instant >= now_here {
        now_there.saturating_add(instant - now_here)
    } else {
        now_there.saturating_sub(now_here - instant)
    }
}

fn milliseconds(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * 1_000 + nanoseconds / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Reading = Reading {
        boottime_ms: 10_000,
        raw_ms: 4_000,
    };

    #[test]
    fn suspend_counts() {
        // 1 s of running, then 60 s of suspend that the raw clock does not count.
        let resumed = Reading {
            boottime_ms: 71_000,
            raw_ms: 5_000,
        };
        assert_eq!(advanced(BASE, resumed), 71_000);
    }

    #[test]
    fn a_slewed_clock_does_not_lengthen_a_lease() {
        // NTP slows the boottime clock: it advanced 950 ms in a true second.
        let later = Reading {
            boottime_ms: 10_950,
            raw_ms: 5_000,
        };
        assert_eq!(advanced(BASE, later), 11_000);
    }

    #[test]
    fn a_deadline_keeps_its_distance_between_processes() {
        assert_eq!(translated(1_500, 1_000, 70_000), 70_500);
        assert_eq!(translated(900, 1_000, 70_000), 69_900);
        assert_eq!(translated(0, 1_000, 70), 0);
    }

    #[test]
    fn a_timestamp_in_whole_seconds_covers_its_whole_second() {
        let at = |ms| UNIX_EPOCH + Duration::from_millis(ms);
        assert!(is_stamped_since(at(7_250), at(7_250)) && is_stamped_since(at(7_251), at(7_250)));
        assert!(!is_stamped_since(at(7_249), at(7_250)));
        assert!(is_stamped_since(at(7_000), at(7_250)) && !is_stamped_since(at(6_000), at(7_000)));
    }

    #[test]
    fn files_are_stamped_by_the_clock_of_files() {
        let before = file_clock();
        let file = tempfile::tempfile().expect("a file");
        let stamp = file
            .metadata()
            .and_then(|it| it.modified())
            .expect("a stamp");
        assert!(is_stamped_since(stamp, before), "{stamp:?} {before:?}");
    }

    #[test]
    fn time_passes() {
        let clock = LeaseClock::start();
        let first = clock.now();
        assert!(clock.now() >= first);
        let there = clock.to_boottime_ms(first.after(5_000));
        let back = clock.at_boottime_ms(there);
        assert!(back.since(first) >= 4_990 && back.since(first) <= 5_010);
    }
}
