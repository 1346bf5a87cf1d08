//! Cleanup after dead supervisors: kills their processes and removes resources without an owner.
//!
//! A task's main process dies with its supervisor (the kernel ensures that); its descendants are found by
//! its session, its process group, its cgroup, and by the control directory in their environment.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fs, io};

use muster_supervisor::container::{self, ContainerRemains};
use muster_supervisor::isolation::shared_memory::{
    remove_unless_used, sweep as sweep_shared_memory,
};
use muster_supervisor::process::{ProcessEntry, ProcessIdentity, carries, kill_pid, mark_of};
use muster_supervisor::{Cgroups, Controller, RunId, TaskDirectory, files};

use crate::tasks::runner::RunnerConfig;

/// Rounds of scanning and killing: a process may fork during a scan.
const ROUNDS_MAX: usize = 200;
/// Pause between rounds.
const ROUND_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

/// Kills a supervisor and all processes of its task, and waits until they are gone. False: some cannot be
/// killed now (they hang in the kernel), or their state is unknown.
pub(super) fn kill_all(directory: &TaskDirectory, supervisor: Option<ProcessIdentity>) -> bool {
    kill_all_of(directory, supervisor, ProcessEntry::all).unwrap_or_else(|error| {
        tracing::warn!(path = %directory.path().display(), %error, "looking for the processes of a task failed");
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
    let spec = readable(directory.read_spec())?;
    let cgroups = spec.as_ref().map(|spec| Cgroups::at(&spec.cgroups()));
    for _ in 0..ROUNDS_MAX {
        for process in &supervisors {
            process.kill();
        }
        if let Some(cgroups) = &cgroups {
            cgroups.kill();
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
        if rest.is_empty() && cgroups.as_ref().is_none_or(Cgroups::is_empty) {
            let place = spec.and_then(|spec| spec.confinement.shared_memory);
            if let Some(place) = place
                && !clears_shared_memory(&place.folder)?
            {
                return Ok(false);
            }
            return ends_container(directory);
        }
        std::thread::park_timeout(ROUND_PAUSE);
    }
    Ok(false)
}

/// Removes the shared memory of the task's attempt unless others use it. False: others are about to start
/// or stop using it, and take too long; the next attempt checks again.
fn clears_shared_memory(folder: &Path) -> io::Result<bool> {
    match remove_unless_used(folder) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            tracing::warn!(path = %folder.display(), %error, "removing a task's shared memory failed");
            Ok(false)
        }
        removed => removed.map(|()| true),
    }
}

/// Whether the task's container is gone. Its engine is asked once: if it cannot answer now, the next
/// attempt asks again.
fn ends_container(directory: &TaskDirectory) -> io::Result<bool> {
    match container::end(directory)? {
        ContainerRemains::Nothing => Ok(true),
        ContainerRemains::PossiblyAlive(why) => {
            tracing::warn!(path = %directory.path().display(), why, "a task's container still exists");
            Ok(false)
        }
    }
}

/// Removes resources of tasks without a directory: processes, cgroups, shared memory and secrets. They are
/// left by an agent or host that died in the middle of its work, and no other code looks for them.
///
/// # Errors
/// If processes cannot be listed.
pub(super) fn sweep(config: &RunnerConfig, known: &BTreeSet<RunId>) -> io::Result<()> {
    let is_stray = |name: &str| name.parse().is_ok_and(|id: RunId| !known.contains(&id));
    if let Some(host) = &config.cgroups {
        for task in host.tasks().into_iter().filter(|task| is_stray(task)) {
            let cgroups = Cgroups::at(&host.paths(&task, &Controller::ALL));
            tracing::warn!(task, "killing and removing a cgroup of an unknown task");
            end(&cgroups);
        }
    }
    let mut mark = b"MUSTER_CTL_DIR=".to_vec();
    mark.extend(config.tasks.as_os_str().as_bytes());
    mark.push(b'/');
    for process in ProcessEntry::all()?.into_iter().filter(|it| !it.is_dead()) {
        let task = variable(process.pid, &mark);
        if let Some(task) = task.filter(|task| is_stray(task)) {
            let pid = process.pid;
            tracing::warn!(task, pid, "killing a process of an unknown task");
            kill_pid(pid);
        }
    }
    // It only holds memory: the next agent tries again.
    if let Some(folder) = &config.shared_memory_folder
        && let Err(error) = sweep_shared_memory(folder)
    {
        tracing::warn!(path = %folder.display(), %error, "removing unused shared memory failed");
    }
    // No such folder: no task was ever given secrets.
    for entry in fs::read_dir(&config.run).into_iter().flatten() {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_stray) {
            files::remove_directory(&entry.path())?;
        }
    }
    Ok(())
}

/// Kills all processes in cgroups and removes these.
fn end(cgroups: &Cgroups) {
    for _ in 0..ROUNDS_MAX {
        if cgroups.is_empty() {
            break;
        }
        cgroups.kill();
        std::thread::park_timeout(ROUND_PAUSE);
    }
    cgroups.remove();
}

/// The text behind `mark` in the environment of a process, up to the next `/`, if the agent may read it.
fn variable(pid: i32, mark: &[u8]) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let rest = variables.find_map(|one| one.strip_prefix(mark))?;
    let name = rest.split(|byte| *byte == b'/').next()?;
    String::from_utf8(name.to_vec()).ok()
}

/// Content of a file; none if it was torn by the death of its writer, and so will never be readable.
fn readable<T>(read: io::Result<Option<T>>) -> io::Result<Option<T>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
        other => other,
    }
}

/// The processes of a task: of its main process's session or group, or with its mark in their environment.
fn members(
    directory: &TaskDirectory,
    main: Option<ProcessIdentity>,
    processes: Vec<ProcessEntry>,
) -> Vec<i32> {
    let mark = mark_of(directory);
    // A process id is not reused while a session or group has it: both belong to another task if the main
    // process's id does.
    let is_anothers = |main: &ProcessIdentity| {
        let mut namesakes = processes.iter().filter(|entry| entry.pid == main.pid);
        namesakes.any(|entry| entry.start_ticks != main.start_ticks)
    };
    let main = main.filter(|main| !is_anothers(main));
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
    use std::os::unix::process::CommandExt;

    use super::*;

    #[test]
    fn a_process_whose_search_fails_does_not_count_as_ended() {
        let home = tempfile::tempdir().unwrap();
        let directory = TaskDirectory::new(home.path().join("7-0-11"));
        let unreadable = || Err(io::ErrorKind::PermissionDenied.into());
        assert!(kill_all_of(&directory, None, unreadable).is_err());
        assert!(kill_all_of(&directory, None, || Ok(Vec::new())).unwrap());
        // The same holds for a supervisor whose record cannot be read now.
        fs::create_dir_all(directory.path().join("claim.json")).unwrap();
        assert!(!kill_all(&directory, None));
    }

    #[test]
    fn another_process_with_the_pid_of_a_dead_main_process_is_not_killed() {
        let home = tempfile::tempdir().unwrap();
        let directory = TaskDirectory::new(home.path().join("7-0-11"));
        let mut command = std::process::Command::new("sleep");
        let mut child = command.arg("1000").process_group(0).spawn().unwrap();
        let now = ProcessIdentity::of(child.id().cast_signed()).unwrap();
        let found = |main| members(&directory, Some(main), ProcessEntry::all().unwrap());
        assert_eq!(found(now), [now.pid]);
        let before = ProcessIdentity {
            start_ticks: now.start_ticks - 1,
            ..now
        };
        assert!(found(before).is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn only_remains_of_unknown_tasks_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let config = crate::testing::runner_config(home.path());
        let start = |task: &str| {
            let control = config.tasks.join(task).join("ctl");
            let mut command = std::process::Command::new("sleep");
            command.arg("1000").env("MUSTER_CTL_DIR", control);
            command.spawn().unwrap()
        };
        let (mut stray, mut known) = (start("8-0-12"), start("7-0-11"));
        for task in ["8-0-12", "7-0-11", "not-ours"] {
            fs::create_dir_all(config.run.join(task)).unwrap();
        }
        // These settings give tasks no private shared memory; earlier ones did.
        let shared = home.path().join("shared");
        fs::create_dir_all(shared.join("8-0-1")).unwrap();
        for stray in ["8-0-1.members", "9-0-1.members"] {
            fs::write(shared.join(stray), "").unwrap();
        }
        sweep(&config, &BTreeSet::from(["7-0-11".parse().unwrap()])).unwrap();
        assert!(!stray.wait().unwrap().success());
        assert!(known.try_wait().unwrap().is_none());
        known.kill().unwrap();
        known.wait().unwrap();
        let exists = |task: &str| config.run.join(task).exists();
        assert!(!exists("8-0-12") && exists("7-0-11") && exists("not-ours"));
        assert_eq!(fs::read_dir(&shared).unwrap().count(), 0);
    }
}
