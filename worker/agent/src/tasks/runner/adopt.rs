//! Adoption of the tasks that an earlier agent of this host left running.
//!
//! Before anything new may start, every directory is in one of these cases: its task ended (the exit record
//! has the result), its supervisor is alive (it is taken over, even if it is too busy to answer), or neither
//! (remaining processes are killed, and those that cannot be killed now keep the task's GPUs until they are
//! dead).

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use muster_control::agent::DiscoveredAttempt;
use muster_model::heartbeat::WorkerTaskPhase;
use muster_model::time::MonotonicMs;
use muster_supervisor::lease::clock::boottime_ms;
use muster_supervisor::process::ProcessIdentity;
use muster_supervisor::{AgentRequest, KEPT, RunId, SupervisorMessage, TaskDirectory, TaskSpec};

use crate::limits::ADOPTION_MAX;
use crate::tasks::runner::connection::Connection;
use crate::tasks::runner::launch::Launched;
use crate::tasks::runner::link::{SupervisorLink, is_frozen, recorded_exit};
use crate::tasks::runner::{Adopted, Runner, leftovers};

/// Pause between attempts to reach a supervisor that is starting.
const RETRY: Duration = Duration::from_millis(10);

/// Exit detail of a task that ended with the kernel.
const REBOOTED: &str = "its host was rebooted";

/// State of one directory.
enum DirectoryState {
    /// No process is alive: the task ended, or its remains were killed.
    Over(WorkerTaskPhase),
    /// Its supervisor answers, or is about to.
    Alive(Box<SupervisorState>),
    /// No supervisor answers, and some process of the task cannot be killed now.
    Unkillable(Option<ProcessIdentity>),
}

/// State reported by a supervisor.
struct SupervisorState {
    /// Phase of its task.
    phase: WorkerTaskPhase,
    /// End of its lease, in milliseconds of `CLOCK_BOOTTIME`.
    deadline_boottime_ms: u64,
    /// Last reported step of the task.
    progress: Option<u64>,
    /// Whether the task is suspended.
    suspended: bool,
    launched: Launched,
}

impl DirectoryState {
    fn phase(&self) -> WorkerTaskPhase {
        match self {
            Self::Over(phase) => phase.clone(),
            Self::Alive(alive) => alive.phase.clone(),
            Self::Unkillable(_) => WorkerTaskPhase::Stopping,
        }
    }

    fn deadline_boottime_ms(&self) -> u64 {
        match self {
            Self::Alive(alive) => alive.deadline_boottime_ms,
            Self::Over(_) | Self::Unkillable(_) => boottime_ms(),
        }
    }
}

/// Examines all directories concurrently.
pub(super) async fn adopt(runner: &Runner) -> io::Result<Adopted> {
    let directories = list(&runner.config.tasks)?;
    let (config, scratch) = (Arc::clone(&runner.config), runner.scratch.clone());
    let known = directories.clone();
    let swept = tokio::task::spawn_blocking(move || {
        scratch.sweep(known.values())?;
        leftovers::sweep(&config, &known.into_keys().collect())
    });
    swept.await.map_err(io::Error::other)??;
    let rebooted = runner.config.rebooted;
    let examined = directories.into_iter().map(|(id, directory)| async move {
        let examining = directory.clone();
        let case = tokio::task::spawn_blocking(move || match rebooted {
            true => Ok(after_reboot(&examining)),
            false => examine(id, &examining),
        })
        .await;
        (id, directory, case)
    });
    let mut adopted = Adopted::default();
    for (id, directory, case) in join_all(examined).await {
        let checkpoints = directory
            .checkpoints()?
            .into_iter()
            .map(|report| (id, report));
        adopted.checkpoints.extend(checkpoints);
        let damaged = directory.damaged()?.into_iter();
        adopted.damaged.extend(damaged.map(|report| (id, report)));
        let case = case.map_err(io::Error::other)??;
        let spec = spec(id, &directory);
        adopted.found.push(DiscoveredAttempt {
            key: id.key,
            epoch: id.epoch,
            phase: case.phase(),
            deadline: runner.clock.at_boottime_ms(case.deadline_boottime_ms()),
            is_suspended: matches!(&case, DirectoryState::Alive(alive) if alive.suspended),
            assignment: spec.as_ref().map(|spec| Box::new(spec.assignment.clone())),
        });
        let deadline_ms = case.deadline_boottime_ms();
        let spec = spec.filter(|_| !matches!(case, DirectoryState::Over(_)));
        if let Some(spec) = &spec {
            hold_folder(runner, spec);
        }
        let cpus = spec
            .and_then(|spec| spec.confinement.cpus)
            .map(|place| runner.config.hardware.cpus.held(place));
        match case {
            DirectoryState::Over(_) => {}
            DirectoryState::Alive(alive) => {
                let progress = alive.progress.map(|step| (id, step));
                adopted.progress.extend(progress);
                runner.hold(id, deadline_ms, |orders, inbox| {
                    let link = SupervisorLink::new(id, directory, orders, inbox);
                    link.holding(cpus).run(alive.launched)
                });
            }
            DirectoryState::Unkillable(supervisor) => {
                runner.hold(id, deadline_ms, |orders, inbox| {
                    let link = SupervisorLink::new(id, directory, orders, inbox);
                    link.holding(cpus).end(supervisor)
                });
            }
        }
    }
    Ok(adopted)
}

/// Holds its checkpoint folder, so that cleaning up an earlier attempt of its task does not remove it.
fn hold_folder(runner: &Runner, spec: &TaskSpec) {
    if spec.assignment.rank.world_size <= 1 {
        let id = RunId::of(&spec.assignment);
        let folders = &runner.checkpoint_folders;
        folders.hold(&spec.checkpoint_directory, id);
    }
}

/// All attempts with a directory, or with files kept outside it, which are all that is left after a reboot.
fn list(tasks: &Path) -> io::Result<BTreeMap<RunId, TaskDirectory>> {
    let mut directories = BTreeMap::new();
    for folder in [tasks.to_owned(), tasks.with_file_name(KEPT)] {
        let entries = match std::fs::read_dir(&folder) {
            // Nothing was ever kept.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            match TaskDirectory::new(&path).run_id() {
                Some(id) => {
                    directories.insert(id, TaskDirectory::below(tasks, id));
                }
                None => {
                    tracing::warn!(path = %path.display(), "ignored a folder that is not a task directory")
                }
            }
        }
    }
    Ok(directories)
}

/// The state of an attempt that exists only in the journal.
pub(crate) fn rebooted(RunId { key, epoch }: RunId) -> DiscoveredAttempt {
    DiscoveredAttempt {
        key,
        epoch,
        phase: WorkerTaskPhase::Gone {
            detail: REBOOTED.to_owned(),
        },
        deadline: MonotonicMs::default(),
        is_suspended: false,
        assignment: None,
    }
}

fn examine(id: RunId, directory: &TaskDirectory) -> io::Result<DirectoryState> {
    // A supervisor that was just being started must not start unnoticed.
    if let Some(me) = ProcessIdentity::of(std::process::id().cast_signed())
        && directory.claim(me).is_ok()
    {
        return Ok(gone());
    }
    let supervisor = directory.supervisor().unwrap_or_default();
    let until = boottime_ms() + u64::try_from(ADOPTION_MAX.as_millis()).unwrap_or(u64::MAX);
    loop {
        if let Some(exit) = recorded_exit(directory) {
            return Ok(DirectoryState::Over(WorkerTaskPhase::Exited(exit)));
        }
        let alive = supervisor.is_some_and(|process| process.is_alive());
        if alive && let Ok(case) = reach(directory, supervisor) {
            return Ok(case);
        }
        if !alive || boottime_ms() >= until {
            break;
        }
        std::thread::park_timeout(RETRY);
    }
    let busy = supervisor.filter(|process| process.is_alive() && !is_frozen(*process));
    if let Some(process) = busy
        && recorded_exit(directory).is_none()
        && let Ok(case) = reach_busy(directory, process)
    {
        tracing::warn!(%id, "a supervisor does not answer yet; taking it over anyway");
        return Ok(case);
    }
    // It may have ended normally between our last look and its end.
    let is_gone = recorded_exit(directory).is_some() || leftovers::kill_all(directory, supervisor);
    Ok(match recorded_exit(directory) {
        Some(exit) => DirectoryState::Over(WorkerTaskPhase::Exited(exit)),
        None if is_gone => gone(),
        None => {
            tracing::warn!(%id, "processes of a task cannot be killed: its GPUs stay allocated");
            DirectoryState::Unkillable(supervisor)
        }
    })
}

/// Connects to a supervisor and asks for its state.
fn reach(
    directory: &TaskDirectory,
    supervisor: Option<ProcessIdentity>,
) -> io::Result<DirectoryState> {
    let stream = UnixStream::connect(directory.agent_socket())?;
    stream.set_read_timeout(Some(ADOPTION_MAX))?;
    send_request(&stream, &AgentRequest::Status)?;
    let mut phase = WorkerTaskPhase::Starting;
    let (mut progress, mut stuck) = (None, None);
    let suspended;
    let mut reader = BufReader::new(stream);
    let deadline_boottime_ms = loop {
        let mut text = String::new();
        if reader.read_line(&mut text)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // A newer supervisor may send messages that this build does not know: no reason to end its task.
        let Ok(message) = serde_json::from_str(&text) else {
            tracing::warn!(text, "unknown message of a supervisor");
            continue;
        };
        match message {
            SupervisorMessage::Prepared { master_port } => {
                phase = WorkerTaskPhase::Prepared { master_port };
            }
            SupervisorMessage::Started { .. } => phase = WorkerTaskPhase::Running,
            // The same is on disk, from where it is read.
            SupervisorMessage::Checkpoint(_) | SupervisorMessage::Damaged(_) => {}
            SupervisorMessage::Progress { step } => progress = Some(step),
            // Sent only to the agent that gave it its task.
            SupervisorMessage::Idle { .. } => {}
            SupervisorMessage::Stuck(it) => stuck = Some(it),
            SupervisorMessage::Exited(exit) => {
                return Ok(DirectoryState::Over(WorkerTaskPhase::Exited(exit)));
            }
            SupervisorMessage::Status {
                deadline_boottime_ms: deadline_ms,
                stopping,
                suspended: stands_still,
            } => {
                suspended = stands_still;
                if stopping {
                    phase = WorkerTaskPhase::Stopping;
                }
                break deadline_ms;
            }
        }
    };
    let launched = Launched {
        // Later messages are read by the link; earlier ones were answers to us.
        connection: Connection::New(reader.into_inner()),
        supervisor,
        child: None,
        stuck,
    };
    Ok(DirectoryState::Alive(Box::new(SupervisorState {
        phase,
        deadline_boottime_ms,
        progress,
        suspended,
        launched,
    })))
}

/// Connects to a supervisor that is too busy to answer: writing its exit record may take many seconds. The
/// link receives its later messages, and detects if it is frozen.
fn reach_busy(
    directory: &TaskDirectory,
    supervisor: ProcessIdentity,
) -> io::Result<DirectoryState> {
    let stream = UnixStream::connect(directory.agent_socket())?;
    // It is unknown whether its task is suspended: if it should be, the order is sent again.
    send_request(&stream, &AgentRequest::Resume)?;
    let phase = match directory.process() {
        Ok(Some(_)) => WorkerTaskPhase::Running,
        _ => WorkerTaskPhase::Starting,
    };
    let launched = Launched {
        connection: Connection::New(stream),
        supervisor: Some(supervisor),
        child: None,
        stuck: None,
    };
    Ok(DirectoryState::Alive(Box::new(SupervisorState {
        phase,
        // Unknown before it answers: the next acknowledged heartbeat extends it.
        deadline_boottime_ms: boottime_ms(),
        progress: None,
        suspended: false,
        launched,
    })))
}

fn send_request(mut stream: &UnixStream, request: &AgentRequest) -> io::Result<()> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn gone() -> DirectoryState {
    vanished("its supervisor was gone when the agent started")
}

/// After a reboot only records are left. A process with a recorded process id is another one.
fn after_reboot(directory: &TaskDirectory) -> DirectoryState {
    match recorded_exit(directory) {
        Some(exit) => DirectoryState::Over(WorkerTaskPhase::Exited(exit)),
        None => vanished(REBOOTED),
    }
}

fn vanished(detail: &str) -> DirectoryState {
    DirectoryState::Over(WorkerTaskPhase::Gone {
        detail: detail.to_owned(),
    })
}

/// The specification of the attempt, if it can be read.
fn spec(id: RunId, directory: &TaskDirectory) -> Option<TaskSpec> {
    let spec = directory
        .read_spec()
        .inspect_err(|error| {
            tracing::error!(%id, %error, "the specification of a task cannot be read");
        })
        .ok()
        .flatten();
    spec.filter(|spec| RunId::of(&spec.assignment) == id)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::path::PathBuf;

    use muster_control::agent::SupervisorReport;
    use muster_supervisor::{Confinement, SPEC_FORMAT, SecretFolders, TaskIdentity};

    use super::*;
    use crate::inbox::{InboxItem, inbox};
    use crate::tasks::runner::RunnerConfig;
    use crate::testing;

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
            cgroup: None,
            confinement: Confinement {
                cgroups: cgroup.into_iter().collect(),
                ..Confinement::default()
            },
            secrets: SecretFolders::default(),
            checkpoint_directory_is_new: false,
            lease_warning_ms: 0,
            engine: None,
            identity: TaskIdentity::default(),
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
    async fn an_unkillable_process_keeps_its_gpus_until_its_end() {
        let home = tempfile::tempdir().unwrap();
        let config = testing::runner_config(home.path());
        // Looks as if it held a process that cannot be killed.
        let cgroup = home.path().join("cgroup");
        std::fs::create_dir(&cgroup).unwrap();
        std::fs::write(cgroup.join("cgroup.procs"), "hanging\n").unwrap();
        let (id, _directory) = orphan(&config, Some(cgroup.clone()));
        let (outbox, mut inbox) = inbox();
        let runner = testing::runner(config, outbox);
        let adopted = runner.adopt().await.unwrap();
        assert_eq!(adopted.found.len(), 1);
        assert_eq!(adopted.found[0].phase, WorkerTaskPhase::Stopping);
        assert!(inbox.try_recv().is_err());
        std::fs::write(cgroup.join("cgroup.procs"), "").unwrap();
        let reported = tokio::time::timeout(Duration::from_secs(20), inbox.recv());
        let Some(InboxItem::Supervisor(of, SupervisorReport::Vanished { .. })) =
            reported.await.unwrap()
        else {
            panic!("not reported as vanished");
        };
        assert_eq!(of, id);
    }

    #[tokio::test]
    async fn a_supervisor_that_is_too_busy_to_answer_is_taken_over_and_not_killed() {
        let home = tempfile::tempdir().unwrap();
        let config = testing::runner_config(home.path());
        let (id, directory) = orphan(&config, None);
        let mut command = std::process::Command::new("sleep");
        let mut living = command.arg("1000").spawn().unwrap();
        std::fs::remove_file(directory.path().join("claim.json")).unwrap();
        let supervisor = ProcessIdentity::of(living.id().cast_signed()).unwrap();
        directory.claim(supervisor).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(directory.agent_socket()).unwrap();
        let busy = std::thread::spawn(move || {
            // It answers only after the agent stopped waiting.
            let unanswered = listener.accept().unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let exit = r#"{"code":0,"out_of_memory":false,"lease_expired":false}"#;
            let lines = format!("{{\"exited\":{exit}}}\n");
            stream.write_all(lines.as_bytes()).unwrap();
            (unanswered, stream)
        });
        let (outbox, mut inbox) = inbox();
        let runner = testing::runner(config, outbox);
        let adopted = runner.adopt().await.unwrap();
        assert_eq!(adopted.found[0].phase, WorkerTaskPhase::Starting);
        let reported = tokio::time::timeout(Duration::from_secs(20), inbox.recv());
        let Some(InboxItem::Supervisor(of, SupervisorReport::Exited(exit))) =
            reported.await.unwrap()
        else {
            panic!("its end is not reported");
        };
        assert_eq!((of, exit.code), (id, Some(0)));
        assert!(living.try_wait().unwrap().is_none(), "it was killed");
        drop(busy.join().unwrap());
        living.kill().unwrap();
        living.wait().unwrap();
    }

    #[test]
    fn a_supervisor_that_sends_unknown_messages_is_adopted() {
        let home = tempfile::tempdir().unwrap();
        let config = testing::runner_config(home.path());
        let (_, directory) = orphan(&config, None);
        let supervisor = std::os::unix::net::UnixListener::bind(directory.agent_socket()).unwrap();
        let newer = std::thread::spawn(move || {
            let (mut stream, _) = supervisor.accept().unwrap();
            let status = r#"{"status":{"deadline_boottime_ms":77,"stopping":false}}"#;
            let lines = format!("{{\"started\":{{\"pid\":5}}}}\n{{\"hummed\":{{}}}}\n{status}\n");
            stream.write_all(lines.as_bytes()).unwrap();
            stream
        });
        let case = reach(&directory, None).unwrap();
        assert_eq!(case.phase(), WorkerTaskPhase::Running);
        assert_eq!(case.deadline_boottime_ms(), 77);
        drop(newer.join().unwrap());
    }
}
