//! Kills what a dead supervisor left behind.
//!
//! A task's main process dies with its supervisor (the kernel sees to it); what that had started is found
//! by its session, its process group, its cgroup, and by the control directory in its environment.

use std::io;

use muster_supervisor::container::{self, Remains};
use muster_supervisor::process::{ProcessEntry, ProcessIdentity, carries, kill_pid, mark_of};
use muster_supervisor::{Cgroup, TaskDirectory};

/// Rounds of looking and killing: a process may fork while we look.
const ROUNDS_MAX: usize = 200;
/// Pause between two rounds.
const ROUND_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

/// Kills a supervisor and all of its task, and waits until they are gone. False: some cannot be killed
/// now (they hang in the kernel), or nobody can tell.
pub(super) fn kill_all(directory: &TaskDirectory, supervisor: Option<ProcessIdentity>) -> bool {
    kill_all_of(directory, supervisor, ProcessEntry::all).unwrap_or_else(|error| {
        tracing::warn!(path = %directory.path().display(), %error, "looking for what is left of a task failed");
        false
    })
}

fn kill_all_of(
    directory: &TaskDirectory,
    supervisor: Option<ProcessIdentity>,
    processes: impl Fn() -> io::Result<Vec<ProcessEntry>>,
) -> io::Result<bool> {
    let recorded = readable(directory.supervisor())?;
    let supervisors: Vec<ProcessIdentity> = supervisor.into_iter().chain(recorded).collect();
    let main = readable(directory.process())?;
    let cgroup = readable(directory.read_spec())?
        .and_then(|spec| spec.cgroup)
        .map(|path| Cgroup::at(&path));
    for _ in 0..ROUNDS_MAX {
        for process in &supervisors {
            process.kill();
        }
        if let Some(cgroup) = &cgroup {
            cgroup.kill();
        }
        let mut rest = members(directory, main, processes()?);
        for pid in &rest {
            kill_pid(*pid);
        }
        rest.extend(
            supervisors
                .iter()
                .filter(|one| one.is_alive())
                .map(|one| one.pid),
        );
        if rest.is_empty() && cgroup.as_ref().is_none_or(Cgroup::is_empty) {
            return ends_container(directory);
        }
        std::thread::park_timeout(ROUND_PAUSE);
    }
    Ok(false)
}

/// Whether nothing of the task's container is left. Its engine is asked once: what it cannot say now, the next attempt asks
/// again.
fn ends_container(directory: &TaskDirectory) -> io::Result<bool> {
    match container::end(directory)? {
        Remains::Nothing => Ok(true),
        Remains::Something(why) => {
            tracing::warn!(path = %directory.path().display(), why, "a task's container is left");
            Ok(false)
        }
    }
}

/// What a file says. One that was torn by the death of its writer says nothing, now or later.
fn readable<T>(read: io::Result<Option<T>>) -> io::Result<Option<T>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
        other => other,
    }
}

fn members(
    directory: &TaskDirectory,
    main: Option<ProcessIdentity>,
    processes: Vec<ProcessEntry>,
) -> Vec<i32> {
    let mark = mark_of(directory);
    processes
        .into_iter()
        .filter(|entry| !entry.is_dead())
        .filter(|entry| {
            main.is_some_and(|main| {
                (entry.session == main.pid || entry.group == main.pid)
                    && entry.start_ticks >= main.start_ticks
            }) || carries(entry.pid, &mark)
        })
        .map(|entry| entry.pid)
        .collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_looked_for_is_not_gone() {
        let home = tempfile::tempdir().unwrap();
        let directory = TaskDirectory::new(home.path().join("7-0-11"));
        let unreadable = || Err(io::ErrorKind::PermissionDenied.into());
        assert!(kill_all_of(&directory, None, unreadable).is_err());
        assert!(kill_all_of(&directory, None, || Ok(Vec::new())).unwrap());
        // Nor is a supervisor whose record cannot be read now.
        std::fs::create_dir_all(directory.path().join("claim.json")).unwrap();
        assert!(!kill_all(&directory, None));
    }
}
