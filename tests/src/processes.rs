//! Processes of one cluster, and their data from the kernel.
//!
//! Supervisors and tasks outlive their agent by design, so a list of children does not include them. The
//! cluster's folder identifies them: it is in the command line or the environment of each.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// Fields of `/proc/<pid>/stat` after the name: the state of the first thread, and the number of threads.
const STATE: usize = 0;
const THREADS: usize = 17;

/// Whether any thread of a process is alive: until then it holds its files and ports.
#[must_use]
pub fn is_alive(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The name may contain any character, so fields are counted from the last parenthesis.
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = fields.split(' ').collect();
    let threads = fields.get(THREADS).and_then(|it| it.parse().ok());
    !matches!(fields.get(STATE), Some(&("Z" | "X")) | None) || threads > Some(1)
}

/// Kills a process (`kill -9`); it may already be gone.
pub fn kill(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _gone = kill_process(pid, Signal::KILL);
    }
}

/// Resident memory of a process in MiB; 0 if it is not running.
#[must_use]
pub fn resident_mib(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1_024
}

/// A variable of a process's initial environment.
#[must_use]
pub fn variable_of(pid: i32, name: &str) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    environment
        .split(|byte| *byte == 0)
        .filter_map(|variable| std::str::from_utf8(variable).ok()?.split_once('='))
        .find_map(|(found, value)| (found == name).then(|| value.to_owned()))
}

/// The command line of a process as text; empty if it is not running.
pub(crate) fn command_line_of(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// Live processes whose command line or environment contains this path.
#[must_use]
pub fn processes_naming(path: &str) -> Vec<i32> {
    mentioning(&[path.as_bytes()])
}

/// Live processes whose command line or environment contains every one of these texts.
pub(crate) fn mentioning(texts: &[&[u8]]) -> Vec<i32> {
    let own = std::process::id().cast_signed();
    let entries = fs::read_dir("/proc").unwrap();
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| *pid != own && mentions(*pid, texts) && is_alive(*pid))
        .collect()
}

/// Live processes of the cluster in this folder.
pub(crate) fn in_folder(folder: &Path) -> Vec<i32> {
    mentioning(&[folder.as_os_str().as_bytes()])
}

fn mentions(pid: i32, texts: &[&[u8]]) -> bool {
    let mut bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    bytes.extend(fs::read(format!("/proc/{pid}/environ")).unwrap_or_default());
    texts
        .iter()
        .all(|text| bytes.windows(text.len()).any(|window| window == *text))
}
