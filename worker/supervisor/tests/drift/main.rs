//! Lease expiry on a machine whose clock runs slow: clock slewing must not lengthen a lease. A separate test
//! program, because other tests would measure by that clock.
#![expect(clippy::unwrap_used, reason = "a failed test should panic")]

#[path = "../supervisor/support.rs"]
#[expect(
    dead_code,
    unused_imports,
    reason = "most of it serves the tests of supervisors"
)]
mod support;

use std::io::Write as _;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use support::{Rig, eventually, script};

/// Microseconds per kernel tick: the default, and a tenth less.
const TICK: libc::c_long = 10_000;
const SLOW_TICK: libc::c_long = 9_000;
/// The lease, in milliseconds; a slow clock would make it a tenth longer.
const LEASE_MS: u64 = 6_000;
/// By when the task must be dead: half of that tenth.
const DEAD_BY: Duration = Duration::from_millis(LEASE_MS + LEASE_MS / 20);

/// Time of the clock that is never slewed.
fn raw() -> Duration {
    let now = clock_gettime(ClockId::MonotonicRaw);
    Duration::new(
        now.tv_sec.unsigned_abs(),
        u32::try_from(now.tv_nsec).unwrap(),
    )
}

/// Reads the kernel's clock parameters; sets the tick first, if one is given.
fn clock(tick: Option<libc::c_long>) -> Option<libc::timex> {
    // SAFETY: all-zero bytes are a valid `timex`, and the kernel reads and writes nothing but it.
    #[expect(unsafe_code, reason = "no safe interface has this system call")]
    unsafe {
        let mut order: libc::timex = std::mem::zeroed();
        if let Some(tick) = tick {
            order.modes = libc::ADJ_TICK;
            order.tick = tick;
        }
        (libc::adjtimex(&raw mut order) >= 0).then_some(order)
    }
}

/// Makes this machine's clock run slow while this value lives, and then too fast until the loss is made up
/// for.
struct SlowClock {
    since: Duration,
}

impl SlowClock {
    /// `None` if the clock is under another program's control, or may not be set.
    fn start() -> Option<Self> {
        let is_kept = clock(None)?.status & libc::STA_UNSYNC == 0;
        if is_kept {
            return None;
        }
        clock(Some(SLOW_TICK))?;
        Some(Self { since: raw() })
    }
}

impl Drop for SlowClock {
    fn drop(&mut self) {
        let slow_for = raw() - self.since;
        clock(Some(2 * TICK - SLOW_TICK));
        // Nothing unparks it; a spurious wake-up would leave the clock a little off.
        std::thread::park_timeout(slow_for);
        clock(Some(TICK));
    }
}

#[test]
fn a_slow_clock_does_not_lengthen_a_lease() {
    let Some(slow) = SlowClock::start() else {
        let why =
            "skipped: this machine's clock is controlled by another program, or may not be set";
        drop(writeln!(std::io::stderr(), "{why}"));
        return;
    };
    let began = raw();
    let mut rig = Rig::start(script("sleep 1000"), LEASE_MS);
    let task = rig.receive_started();
    eventually("the task's death", || !task.is_alive());
    let lived = raw() - began;
    drop(slow);
    assert!(rig.receive_exit().lease_expired);
    assert!(lived < DEAD_BY, "{lived:?}");
    assert!(lived > DEAD_BY / 2, "{lived:?}");
}
