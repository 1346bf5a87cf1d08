//! The process tree of a task: its main process and all descendants, even daemonized ones.
//! The supervisor is their subreaper, so a process whose parent died becomes its child. While any process of
//! the task is alive, the supervisor has a child; when it has none, the task has fully ended.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use muster_model::command::{Exit, MemoryUsage, SignalSender};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, wait, waitpid};

use crate::container::{self, ContainerEnd, Removal};
use crate::isolation::cgroup::{ReusableCgroups, Shortage};
use crate::process::rounds::Rounds;
use crate::process::{ProcessEntry, descendants, kill_pid, signal_group, signal_pid};
use crate::task::ready::TaskResources;
use crate::task::secrets::Secrets;
use crate::task::start::Started;

/// Maximum rounds of stopping processes: one that forks endlessly is caught by the next call.
const SUSPEND_ROUNDS_MAX: usize = 8;

/// The processes of one task.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    main: i32,
    /// Readable once the main process has ended.
    main_ended: OwnedFd,
    status: Option<WaitStatus>,
    belongings: TaskResources,
    /// Signals sent by the supervisor while the main process was alive: whether it was terminated, and
    /// whether it was killed.
    asked: Cell<bool>,
    killed: Cell<bool>,
    /// Removes the task's container if its runner did not, if the task has one.
    removal: Option<Removal>,
}

/// Read ends of the task's output pipes.
#[derive(Debug)]
pub(crate) struct Outputs {
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

impl ProcessTree {
    /// The processes of a started task, with the resources created for it.
    pub(crate) fn of(
        started: Started,
        belongings: TaskResources,
        removal: Option<Removal>,
    ) -> (Self, Outputs) {
        let tree = Self {
            main: started.pid,
            main_ended: started.ended,
            status: None,
            belongings,
            asked: Cell::new(false),
            killed: Cell::new(false),
            removal,
        };
        let outputs = Outputs {
            stdout: started.stdout,
            stderr: started.stderr,
        };
        (tree, outputs)
    }

    /// Secrets of the task.
    pub(crate) const fn secrets(&self) -> &Secrets {
        &self.belongings.secrets
    }

    /// Process id of the main process.
    pub(crate) const fn main(&self) -> i32 {
        self.main
    }

    /// Exit status of the main process, if it has ended.
    pub(crate) const fn status(&self) -> Option<WaitStatus> {
        self.status
    }

    /// Completes `exit`, which the main process reported, with what the kernel, the engine of its `container`
    /// and the supervisor itself know about the end.
    pub(crate) fn account(&self, exit: Exit, container: &ContainerEnd) -> Exit {
        let cgroups = &self.belongings.cgroups;
        let shortage = self.memory_shortage(container);
        let refused = match self.belongings.limits.limit_processes() {
            true => cgroups.processes_refused(),
            false => 0,
        };
        let evidence = match (refused, shortage) {
            (0, Some(Shortage::OfTheHost)) => {
                "the kernel killed a process of the task because the host was out of memory"
                    .to_owned()
            }
            (0, _) => exit.evidence,
            (refused, _) => format!("the process limit (pids_max) refused {refused} forks"),
        };
        Exit {
            out_of_memory: shortage == Some(Shortage::OfItsLimit),
            memory: self.memory(container),
            sender: self.sender(shortage),
            evidence,
            ..exit
        }
    }

    /// Whose memory was exhausted. For a container's limit, the runner reports it, and is the only source
    /// where the container is not below the task's cgroup. Where it is, the cgroup is more accurate: some
    /// engines mistake a shortage of the host for the limit.
    fn memory_shortage(&self, container: &ContainerEnd) -> Option<Shortage> {
        let by_kernel = || self.belongings.cgroups.memory_shortage();
        let seen = self.counts_memory(container).then(by_kernel).flatten();
        // Version 1 counts a kill only in the cgroup of the killed process, not in its parents.
        seen.or_else(|| container.out_of_memory.then_some(Shortage::OfItsLimit))
    }

    /// Memory statistics of the task. They are unknown for a container outside the task's cgroups, unless it
    /// reached its limit.
    fn memory(&self, container: &ContainerEnd) -> Option<MemoryUsage> {
        if self.counts_memory(container) {
            return self.belongings.cgroups.memory();
        }
        let limit = self.belongings.limits.memory_bytes();
        let met = limit.filter(|_| container.out_of_memory);
        met.map(|bytes| MemoryUsage {
            limit_bytes: bytes,
            peak_bytes: bytes,
        })
    }

    /// Whether the task's cgroups account for its memory, and not only for a container's runner.
    const fn counts_memory(&self, container: &ContainerEnd) -> bool {
        !self.is_in_container() || container.is_below_ours
    }

    /// Sender of the signal that ended the main process, if any. A shell or a launcher fails by itself when
    /// the kernel kills its child: that counts as the kernel's doing too.
    fn sender(&self, shortage: Option<Shortage>) -> Option<SignalSender> {
        let status = self.status?;
        let Some(signal) = status.terminating_signal() else {
            let is_bad = status.exit_status().is_some_and(|code| code != 0);
            let by_kernel = is_bad && shortage == Some(Shortage::OfTheHost);
            return by_kernel.then_some(SignalSender::Kernel);
        };
        let is = |other: Signal| signal == other.as_raw();
        let ours =
            (is(Signal::KILL) && self.killed.get()) || (is(Signal::TERM) && self.asked.get());
        Some(match shortage {
            _ if ours => SignalSender::Supervisor,
            Some(_) if is(Signal::KILL) => SignalSender::Kernel,
            _ => SignalSender::Other,
        })
    }

    /// Reaps ended processes and reports all but the main process. True if no process of the task is alive.
    pub(crate) fn reap(&mut self, mut on_reaped: impl FnMut(i32, WaitStatus)) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    let pid = pid.as_raw_nonzero().get();
                    if pid == self.main {
                        self.status = Some(status);
                    } else {
                        on_reaped(pid, status);
                    }
                    if let Some(removal) = &mut self.removal {
                        removal.note(pid, status);
                    }
                }
                Ok(None) => return false,
                Err(Errno::INTR) => {}
                // The only other error is that there are no children.
                Err(_) => {
                    let removal = self.removal.as_mut();
                    return removal.is_none_or(|removal| removal.is_over(self.status));
                }
            }
        }
    }

    /// Reaps the main process if it has ended, and no other.
    pub(crate) fn reap_main(&mut self) {
        // `None` once it was reaped, and after an error: the next call tries again.
        let main = Pid::from_raw(self.main).filter(|_| self.status.is_none());
        if let Some(Ok(Some((_, status)))) = main.map(|it| waitpid(Some(it), WaitOptions::NOHANG)) {
            self.status = Some(status);
        }
    }

    /// Terminates the task's process group, because a shell in front of the program forwards no signals.
    pub(crate) fn terminate(&self) {
        let is_collected = self.status.is_some();
        if !is_collected {
            self.asked.set(true);
        }
        // A stopped process acts on no other signal.
        for signal in [Signal::TERM, Signal::CONT] {
            signal_group_of(self.main, is_collected, signal);
        }
    }

    /// Sends a signal to the task's main process, or to every process of the task that can be found now.
    pub(crate) fn signal(&self, signal: Signal, to_all: bool) {
        let main = self.status.is_none().then_some(self.main);
        let all = if to_all { self.all() } else { Vec::new() };
        let others = all.into_iter().filter(|pid| *pid != self.main);
        for pid in main.into_iter().chain(others) {
            signal_pid(pid, signal);
            // A stopped process acts on no other signal.
            signal_pid(pid, Signal::CONT);
        }
    }

    /// The processes of the task that can be found now.
    fn all(&self) -> Vec<i32> {
        let entries = ProcessEntry::all().unwrap_or_default();
        match &self.removal {
            Some(removal) => removal.others_in_container(&entries),
            None => descendants(&entries, getpid().as_raw_nonzero().get()),
        }
    }

    /// The live processes of the task, as far as they can be found now.
    pub(crate) fn survivors(&self) -> Vec<ProcessEntry> {
        let all = self.all().into_iter().filter_map(ProcessEntry::read);
        all.filter(|entry| !entry.is_dead()).collect()
    }

    /// Kills every process of the task that can be found now. Repeat it until [`Self::reap`] reports that
    /// none is left: a process may fork during the scan.
    pub(crate) fn kill(&self) {
        if self.status.is_none() {
            self.killed.set(true);
            signal_group(self.main, Signal::KILL);
        }
        self.belongings.cgroups.kill();
        kill_descendants(self.removal.as_ref().and_then(Removal::running));
    }

    /// Stops every process of the task, including those that appear meanwhile, except the commands `beside`
    /// it. Repeat it while the task is to be paused: another process may continue one, or the runner of its
    /// container may not have handled the request yet.
    pub(crate) fn suspend(&self, beside: &[i32]) {
        if self.is_in_container() {
            self.signal_runner(container::PAUSE_SIGNAL);
            return;
        }
        for _ in 0..SUSPEND_ROUNDS_MAX {
            if !signal_descendants(Signal::STOP, beside, |entry| !entry.is_stopped()) {
                return;
            }
        }
    }

    /// Resumes every process of the task; those of the commands `beside` it were not stopped.
    pub(crate) fn resume(&self, beside: &[i32]) {
        if self.is_in_container() {
            self.signal_runner(container::RESUME_SIGNAL);
            return;
        }
        signal_descendants(Signal::CONT, beside, |_| true);
    }

    /// Whether the main process is the runner of a container, whose processes are not descendants of the
    /// supervisor.
    const fn is_in_container(&self) -> bool {
        self.removal.is_some()
    }

    fn signal_runner(&self, signal: Signal) {
        if self.status.is_none() {
            signal_pid(self.main, signal);
        }
    }

    /// Releases cgroups and secrets once no process is alive; keeps reusable cgroups if there may be a next
    /// task.
    pub(crate) fn close(self, may_keep: bool) -> Option<ReusableCgroups> {
        self.belongings.close(may_keep)
    }
}

/// Kills all descendants of this process, also after a failed start, and waits for their end.
pub(crate) fn end_all() {
    let mut rounds = Rounds::default();
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => {
                kill_descendants(None);
                std::thread::park_timeout(rounds.pause());
            }
            // The only other error is that there are no children.
            Err(_) => return,
        }
    }
}

/// Signals the process group of a main process. Until that is reaped, its id cannot be reused; afterwards the
/// group may be unrelated, and the task's processes in it are signalled one by one.
fn signal_group_of(main: i32, is_collected: bool, signal: Signal) {
    match is_collected {
        false => signal_group(main, signal),
        true => {
            signal_descendants(signal, &[], |entry| entry.group == main);
        }
    }
}

/// Processes that are not visible now are found in the next round: while any is alive, there is one.
fn kill_descendants(but: Option<i32>) {
    let me = getpid().as_raw_nonzero().get();
    for pid in descendants(&ProcessEntry::all().unwrap_or_default(), me) {
        if Some(pid) != but {
            kill_pid(pid);
        }
    }
}

/// Signals the matching descendants, except those in the sessions `beside`; true if there were any.
fn signal_descendants(
    signal: Signal,
    beside: &[i32],
    is_meant: impl Fn(&ProcessEntry) -> bool,
) -> bool {
    let me = getpid().as_raw_nonzero().get();
    // A failed listing is repeated with the next check of the task.
    let entries = ProcessEntry::all().unwrap_or_default();
    let tree = descendants(&entries, me);
    let others: Vec<i32> = beside
        .iter()
        .flat_map(|leader| descendants(&entries, *leader))
        .collect();
    let is_beside =
        |entry: &ProcessEntry| beside.contains(&entry.session) || others.contains(&entry.pid);
    let meant = entries
        .iter()
        .filter(|entry| tree.contains(&entry.pid) && !is_beside(entry) && is_meant(entry));
    let mut any = false;
    for entry in meant {
        any = true;
        signal_pid(entry.pid, signal);
    }
    any
}

impl AsFd for ProcessTree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.main_ended.as_fd()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::process::ProcessIdentity;
    use crate::testing::eventually;

    #[test]
    fn only_the_tasks_members_of_a_process_group_without_leader_are_signalled() {
        // The shell leads a group, and leaves a process in it that is no longer a descendant.
        let shell = Command::new("sh")
            .args(["-c", "sleep 1000 > /dev/null 2>&1 & echo $!"])
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let group = shell.id().cast_signed();
        let printed = shell.wait_with_output().unwrap().stdout;
        let stranger = String::from_utf8(printed).unwrap().trim().parse().unwrap();
        assert_eq!(ProcessEntry::read(stranger).unwrap().group, group);
        let stranger = ProcessIdentity::of(stranger).unwrap();
        let mut ours = Command::new("sleep")
            .arg("1000")
            .process_group(group)
            .spawn()
            .unwrap();
        signal_group_of(group, true, Signal::KILL);
        assert!(!ours.wait().unwrap().success());
        assert!(stranger.is_alive());
        signal_group_of(group, false, Signal::KILL);
        eventually("the whole group is gone", || !stranger.is_alive());
    }
}
