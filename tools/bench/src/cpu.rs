//! Processor time and memory of processes, from `/proc`.

use std::fs;
use std::time::Duration;

use anyhow::Context as _;

/// Fields of `/proc/PID/stat` between the program's name and `utime`.
const FIELDS_BEFORE_UTIME: usize = 11;

/// Ticks per second in `/proc` (`USER_HZ`): a constant of Linux on every supported processor.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time (user and system) that a process has used.
pub(crate) fn used_by(pid: i32) -> anyhow::Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    // The name is in parentheses and may contain anything, including spaces.
    let (_, fields) = text.rsplit_once(')').context("no name in /proc/PID/stat")?;
    let mut fields = fields.split_whitespace().skip(FIELDS_BEFORE_UTIME);
    let mut ticks = || -> anyhow::Result<u64> {
        let field = fields.next().context("a short /proc/PID/stat")?;
        field.parse().context("a number in /proc/PID/stat")
    };
    let total = ticks()? + ticks()?;
    Ok(Duration::from_secs_f64(total as f64 / TICKS_PER_SECOND))
}

/// Processor time that several processes have used together.
pub(crate) fn used_by_all(pids: &[i32]) -> anyhow::Result<Duration> {
    pids.iter().map(|pid| used_by(*pid)).sum()
}

/// Processor time that this process has used.
pub(crate) fn used_here() -> anyhow::Result<Duration> {
    used_by(i32::try_from(std::process::id()).context("this process's id")?)
}

/// Anonymous resident memory of a process, in MiB.
pub(crate) fn memory_mib(pid: i32) -> anyhow::Result<f64> {
    const KIB_PER_MIB: f64 = 1_024.0;
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line
        .and_then(|line| line.split_whitespace().next())
        .context("no RssAnon in /proc/PID/status")?;
    Ok(kib.parse::<f64>().context("RssAnon")? / KIB_PER_MIB)
}
