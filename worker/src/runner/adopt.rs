//! Finds the tasks that an earlier agent of this host left running.
//!
//! Before anything new may start, every directory is in one of these cases: its task ended (the record
//! says how), its supervisor lives and answers (it is taken over), or neither (what is left is killed, and
//! what cannot be killed now keeps its GPUs until it is dead).

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use muster_core::agent::Found;
use muster_core::beat::WorkerTaskPhase;

use super::launch::Launched;
use super::link::Link;
use super::{Adopted, Runner, leftovers};
use crate::clock::boottime_ms;
use crate::limits::ADOPTION_MAX;
use crate::process::ProcessIdentity;
use crate::run_id::RunId;
use crate::supervisor::{AgentRequest, SupervisorMessage, TaskDirectory};

/// Pause between two attempts to reach a supervisor that is only starting.
const RETRY: Duration = Duration::from_millis(10);

/// What one directory holds.
enum Case {
    Ended(Found),
    Alive(Found, Launched),
    /// No supervisor answers, and something of the task cannot be killed now.
    Unkillable(Found, Option<ProcessIdentity>),
    Dead,
}

/// Looks at every directory, at all of them at the same time.
pub(super) async fn adopt(runner: &Runner) -> io::Result<Adopted> {
    let directories = list(&runner.config.tasks)?;
    let examined = directories.into_iter().map(|(id, directory)| {
        let clock = runner.clock;
        async move {
            let examining = directory.clone();
            let case = tokio::task::spawn_blocking(move || examine(id, &examining)).await;
            (id, directory, clock, case)
        }
    });
    let mut adopted = Adopted::default();
    for (id, directory, clock, case) in join_all(examined).await {
        adopted.directories.push(id);
        if let Some(report) = directory.checkpoint()? {
            adopted.checkpoints.push((id, report));
        }
        match case.map_err(io::Error::other)?? {
            Case::Ended(found) => adopted.found.push(found),
            Case::Alive(mut found, launched) => {
                let deadline_ms = found.deadline.0;
                found.deadline = clock.at_boottime_ms(deadline_ms);
                adopted.found.push(found);
                runner.hold(id, deadline_ms, |orders, inbox| {
                    Link::new(id, directory, orders, inbox).run(launched)
                });
            }
            Case::Unkillable(mut found, supervisor) => {
                let deadline_ms = found.deadline.0;
                found.deadline = clock.at_boottime_ms(deadline_ms);
                adopted.found.push(found);
                runner.hold(id, deadline_ms, |orders, inbox| {
                    Link::new(id, directory, orders, inbox).end(supervisor)
                });
            }
            Case::Dead => {}
        }
    }
    Ok(adopted)
}

fn list(tasks: &Path) -> io::Result<Vec<(RunId, TaskDirectory)>> {
    let mut directories = Vec::new();
    for entry in std::fs::read_dir(tasks)? {
        let directory = TaskDirectory::new(entry?.path());
        match directory.run_id() {
            Some(id) => directories.push((id, directory)),
            None => {
                tracing::warn!(path = %directory.path().display(), "not a task's directory: left alone")
            }
        }
    }
    Ok(directories)
}

fn examine(id: RunId, directory: &TaskDirectory) -> io::Result<Case> {
    // A supervisor that was only being started must not begin behind our back.
    if let Some(me) = ProcessIdentity::of(std::process::id().cast_signed())
        && directory.claim(me).is_ok()
    {
        return Ok(Case::Dead);
    }
    let supervisor = directory.supervisor().unwrap_or_default();
    let until = boottime_ms() + u64::try_from(ADOPTION_MAX.as_millis()).unwrap_or(u64::MAX);
    loop {
        if let Some(record) = directory.exit()? {
            let phase = WorkerTaskPhase::Exited(record.exit);
            return Ok(Case::Ended(found(id, phase, 0)));
        }
        let alive = supervisor.is_some_and(|process| process.is_alive());
        if alive && let Ok((found, launched)) = reach(id, directory, supervisor) {
            return Ok(Case::Alive(found, launched));
        }
        if !alive || boottime_ms() >= until {
            break;
        }
        std::thread::park_timeout(RETRY);
    }
    // It may have ended well between our last look and its end.
    let is_gone = directory.exit()?.is_some() || leftovers::kill_all(directory, supervisor);
    Ok(match directory.exit()? {
        Some(record) => Case::Ended(found(id, WorkerTaskPhase::Exited(record.exit), 0)),
        None if is_gone => Case::Dead,
        None => {
            tracing::warn!(%id, "what is left of a task cannot be killed: its GPUs stay taken");
            let dying = found(id, WorkerTaskPhase::Stopping, boottime_ms());
            Case::Unkillable(dying, supervisor)
        }
    })
}

/// Connects to a supervisor and asks how it stands.
fn reach(
    id: RunId,
    directory: &TaskDirectory,
    supervisor: Option<ProcessIdentity>,
) -> io::Result<(Found, Launched)> {
    let stream = UnixStream::connect(directory.agent_socket())?;
    stream.set_read_timeout(Some(ADOPTION_MAX))?;
    let mut line = serde_json::to_vec(&AgentRequest::Status)?;
    line.push(b'\n');
    (&stream).write_all(&line)?;
    let mut phase = WorkerTaskPhase::Starting;
    let mut reader = BufReader::new(stream);
    let deadline_ms = loop {
        let mut text = String::new();
        if reader.read_line(&mut text)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match serde_json::from_str(&text)? {
            SupervisorMessage::Started { .. } => phase = WorkerTaskPhase::Running,
            // The same lies on disk, where it is read.
            SupervisorMessage::Checkpoint(_) => {}
            SupervisorMessage::Exited(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            SupervisorMessage::Status {
                deadline_boottime_ms,
                stopping,
            } => {
                if stopping {
                    phase = WorkerTaskPhase::Stopping;
                }
                break deadline_boottime_ms;
            }
        }
    };
    let launched = Launched {
        // What it says from now on is read by the link; all it said before was an answer to us.
        stream: reader.into_inner(),
        supervisor,
        child: None,
    };
    Ok((found(id, phase, deadline_ms), launched))
}

fn found(id: RunId, phase: WorkerTaskPhase, deadline_boottime_ms: u64) -> Found {
    Found {
        key: id.key,
        epoch: id.epoch,
        phase,
        deadline: muster_core::time::MonotonicMs(deadline_boottime_ms),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::path::PathBuf;

    use muster_core::agent::SupervisorReport;

    use super::*;
    use crate::clock::LeaseClock;
    use crate::inbox::{Incoming, inbox};
    use crate::runner::RunnerConfig;
    use crate::supervisor::{LogLimits, SPEC_FORMAT, TaskSpec};
    use crate::testing;

    fn config(home: &Path) -> RunnerConfig {
        RunnerConfig {
            supervisor: PathBuf::from("/nonexistent/muster"),
            tasks: home.join("tasks"),
            logs: home.join("logs"),
            checkpoints: home.join("checkpoints"),
            checkpoint_scan_ms: 1_000,
            log_limits: LogLimits::default(),
            cgroup_root: None,
        }
    }

    /// The directory of a task whose supervisor is dead.
    fn orphan(config: &RunnerConfig, cgroup: Option<PathBuf>) -> (RunId, TaskDirectory) {
        let assignment = testing::assignment();
        let id = RunId::of(&assignment);
        let directory = TaskDirectory::below(&config.tasks, id);
        let spec = TaskSpec {
            format: SPEC_FORMAT,
            assignment,
            deadline_boottime_ms: 0,
            log_directory: config.logs.clone(),
            log_limits: config.log_limits,
            checkpoint_directory: config.checkpoints.clone(),
            checkpoint_scan_ms: config.checkpoint_scan_ms,
            cgroup,
        };
        directory.create(&spec).unwrap();
        let dead = ProcessIdentity {
            pid: i32::MAX,
            start_ticks: 1,
        };
        directory.claim(dead).unwrap();
        (id, directory)
    }

    #[tokio::test]
    async fn what_cannot_be_killed_keeps_its_gpus_until_it_is_dead() {
        let home = tempfile::tempdir().unwrap();
        let config = config(home.path());
        // To all appearances it holds a process that no kill ends.
        let cgroup = home.path().join("cgroup");
        std::fs::create_dir(&cgroup).unwrap();
        std::fs::write(cgroup.join("cgroup.procs"), "hanging\n").unwrap();
        let (id, _directory) = orphan(&config, Some(cgroup.clone()));
        let (outbox, mut inbox) = inbox();
        let runner = Runner::new(config, LeaseClock::start(), outbox);
        let adopted = runner.adopt().await.unwrap();
        assert_eq!(adopted.found.len(), 1);
        assert_eq!(adopted.found[0].phase, WorkerTaskPhase::Stopping);
        assert!(inbox.try_recv().is_err());
        std::fs::write(cgroup.join("cgroup.procs"), "").unwrap();
        let reported = tokio::time::timeout(Duration::from_secs(20), inbox.recv());
        let Some(Incoming::Supervisor(of, SupervisorReport::Vanished { .. })) =
            reported.await.unwrap()
        else {
            panic!("not reported as vanished");
        };
        assert_eq!(of, id);
    }
}
