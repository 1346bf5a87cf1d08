//! Faults of processes that others started and the user names. They are held by file descriptors from the
//! start: if the system reuses a process id later, the new process is not hit.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, io};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::cluster::{ClusterError, failed};

/// An agent that may be frozen or killed, as named by the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedAgent {
    /// Its host, as named in the cluster.
    pub host: String,
    /// Its process id.
    pub pid: i32,
}

/// A process that is not what the user named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("process {pid} {why}")]
pub struct UnfitProcess {
    /// The process id.
    pub pid: i32,
    /// The reason.
    pub why: String,
}

/// A process held by a file descriptor.
#[derive(Debug)]
pub(crate) struct NamedProcess {
    /// Process id for messages.
    pub(crate) pid: i32,
    /// The host of an agent; `None` for a replica.
    pub(crate) host: Option<String>,
    descriptor: OwnedFd,
    is_frozen: AtomicBool,
}

impl NamedProcess {
    /// Opens the agent of a host on this machine.
    ///
    /// # Errors
    /// If it does not run, is no agent, or belongs to another host.
    pub(crate) fn agent(named: &NamedAgent) -> Result<Self, UnfitProcess> {
        let (process, words) = Self::of(named.pid, "worker")?;
        let name = name_in(&words, named.pid);
        if name.as_ref() != Some(&named.host) {
            let other = name.unwrap_or_else(|| "an unknown host".to_owned());
            let why = format!("is the agent of {other}, not of {}", named.host);
            return Err(process.unfit(why));
        }
        Ok(Self {
            host: Some(named.host.clone()),
            ..process
        })
    }

    /// Opens a replica on this machine.
    ///
    /// # Errors
    /// If it does not run or is no replica.
    pub(crate) fn replica(pid: i32) -> Result<Self, UnfitProcess> {
        Ok(Self::of(pid, "scheduler")?.0)
    }

    fn of(pid: i32, role: &str) -> Result<(Self, Vec<String>), UnfitProcess> {
        let unfit = |why: String| UnfitProcess { pid, why };
        let id = Pid::from_raw(pid).ok_or_else(|| unfit("is no process id".to_owned()))?;
        let opened = pidfd_open(id, PidfdFlags::empty());
        let descriptor = opened.map_err(|error| unfit(format!("cannot be opened: {error}")))?;
        let words = fs::read(format!("/proc/{pid}/cmdline"));
        let words = words.map_err(|error| unfit(format!("cannot be inspected: {error}")))?;
        let words: Vec<String> = words
            .split(|byte| *byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        let is_muster = words.first().is_some_and(|program| {
            let name = Path::new(program).file_name();
            name.is_some_and(|name| name.to_string_lossy().starts_with("muster"))
        });
        if !is_muster || words.get(1).is_none_or(|word| word != role) {
            return Err(unfit(format!("is not a `muster {role}`")));
        }
        let process = Self {
            pid,
            host: None,
            descriptor,
            is_frozen: AtomicBool::new(false),
        };
        Ok((process, words))
    }

    fn unfit(&self, why: String) -> UnfitProcess {
        UnfitProcess { pid: self.pid, why }
    }

    /// Whether it still runs, even if paused.
    pub(crate) fn is_alive(&self) -> bool {
        let mut descriptors = [PollFd::new(&self.descriptor, PollFlags::IN)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // It is readable once the process has ended.
        poll(&mut descriptors, Some(&at_once)).is_ok_and(|ready| ready == 0)
    }

    /// Kills it at once (SIGKILL).
    pub(crate) fn kill(&self) -> Result<(), ClusterError> {
        self.signal(Signal::KILL)
    }

    /// Pauses it (SIGSTOP).
    pub(crate) fn freeze(&self) -> Result<(), ClusterError> {
        // Set before the signal: the clean-up must not miss it.
        self.is_frozen.store(true, Ordering::SeqCst);
        self.signal(Signal::STOP)
    }

    /// Resumes it, if we paused it.
    pub(crate) fn thaw(&self) -> Result<(), ClusterError> {
        if !self.is_frozen.load(Ordering::SeqCst) || !self.is_alive() {
            return Ok(());
        }
        self.signal(Signal::CONT)?;
        // Cleared after the signal: if that fails, the clean-up tries again.
        self.is_frozen.store(false, Ordering::SeqCst);
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<(), ClusterError> {
        let sent = pidfd_send_signal(&self.descriptor, signal).map_err(io::Error::from);
        sent.map_err(failed(format!("signalling process {}", self.pid)))
    }
}

/// Host name of an agent: from its flag, its settings, or the machine's name.
fn name_in(words: &[String], pid: i32) -> Option<String> {
    let value = |flag: &str| {
        let next = words.iter().position(|word| word == flag);
        let next = next.and_then(|at| words.get(at + 1)).cloned();
        let with_sign = words.iter().find_map(|word| {
            let rest = word.strip_prefix(flag)?;
            rest.strip_prefix('=').map(str::to_owned)
        });
        next.or(with_sign)
    };
    if let Some(name) = value("--name") {
        return Some(name);
    }
    if let Some(settings) = value("--config") {
        // A path may be relative to the agent's working directory.
        let path = Path::new("/proc").join(pid.to_string()).join("cwd");
        let text = fs::read_to_string(path.join(settings)).ok()?;
        if let Some(name) = name_in_settings(&text) {
            return Some(name);
        }
    }
    let machine = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(machine.trim().to_owned())
}

/// The name in an agent's settings, in JSON or as a line of YAML.
fn name_in_settings(text: &str) -> Option<String> {
    if let Ok(settings) = serde_json::from_str::<serde_json::Value>(text) {
        return settings["name"].as_str().map(str::to_owned);
    }
    let line = text.lines().find_map(|line| line.strip_prefix("name:"))?;
    let value = line.split(" #").next()?.trim();
    Some(value.trim_matches(['"', '\'']).to_owned())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_is_none_of_ours_is_refused() {
        let own = std::process::id().cast_signed();
        let refused = NamedProcess::replica(own).unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!("process {own} is not a `muster scheduler`")
        );
        assert!(NamedProcess::replica(0).is_err());
        let mut ended = Command::new("true").spawn().unwrap();
        let pid = ended.id().cast_signed();
        ended.wait().unwrap();
        let named = NamedAgent {
            host: "node01".to_owned(),
            pid,
        };
        assert!(NamedProcess::agent(&named).is_err());
    }

    #[test]
    fn the_name_of_an_agent_is_read_where_it_is_said() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let own = std::process::id().cast_signed();
        for text in ["muster worker --name a", "muster worker --name=a"] {
            assert_eq!(name_in(&words(text), own).as_deref(), Some("a"));
        }
        let machine = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let unnamed = name_in(&words("muster worker"), own);
        assert_eq!(unnamed.as_deref(), Some(machine.trim()));
        assert_eq!(name_in_settings("{\"name\": \"b\"}").as_deref(), Some("b"));
        let yaml = "data_dir: /d\nname: \"c\" # ours\n";
        assert_eq!(name_in_settings(yaml).as_deref(), Some("c"));
        assert_eq!(name_in_settings("data_dir: /d\n"), None);
    }
}
