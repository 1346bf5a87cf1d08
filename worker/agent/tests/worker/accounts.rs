//! Tests of tasks that run as other accounts than their agent, which is root here: their identity and their
//! restrictions.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use muster_model::command::Exit;
use muster_model::desired::{StopInstruction, TaskAssignment};
use muster_model::ids::JobId;
use muster_proto::v1;
use muster_proto::v1::exec_response::Kind as ResponseKind;
use muster_proto::v1::leader_message::Kind as LeaderKind;
use muster_worker::supervisor::Account;
use muster_worker::{RunAs, TasksConfig, WorkerConfig};

use crate::agent::{Host, exited, running};
use crate::support::leader::Leader;
use crate::support::{FIXTURE, eventually, is_gone, script};

/// Accounts of every Linux, and the users mapped to them.
const NOBODY: &str = "nobody";
const ADA: &str = "ada@example.org";
const DAEMON: &str = "daemon";

/// False if the tests cannot run without root.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        drop(writeln!(
            std::io::stderr(),
            "skipped: only root can run tasks as others"
        ));
    }
    is_root
}

/// Tasks run as their submitters, two of whom have accounts, one of them a system account.
fn submitters(config: &mut WorkerConfig, home: &Path) {
    // The folder was created for this user alone; a data directory below it would be refused.
    fs::set_permissions(home, Permissions::from_mode(0o711)).unwrap();
    let program = home.join("fixture");
    fs::copy(FIXTURE, &program).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    config.supervisor = Some(program);
    config.tasks = TasksConfig {
        run_as: RunAs::Submitter,
        min_uid: 1,
        users: [(ADA.to_owned(), NOBODY.to_owned())].into(),
        ..TasksConfig::default()
    };
}

fn of(user: &str, text: &str) -> TaskAssignment {
    TaskAssignment {
        user: user.to_owned(),
        ..script(text)
    }
}

fn account(name: &str) -> Account {
    Account::find(name).unwrap().unwrap()
}

/// The groups of an account as its programs see them.
fn groups(name: &str) -> String {
    let output = Command::new("id").args(["-G", name]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A field of a process's status in the kernel.
fn status(pid: i32, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.unwrap()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

async fn refused(leader: &Leader, task: TaskAssignment) -> Exit {
    leader.want([task]);
    leader.eventually_task("the refusal", exited).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_keeps_its_submitters_account_and_can_be_killed() {
    if !is_root() {
        return;
    }
    let leader = Leader::start(3).await;
    let host = Host::start_with(&[&leader], submitters);
    let text = "trap '' TERM
        [ $PWD -ef $MUSTER_CTL_DIR/../scratch ] || exit 9
        echo again > /dev/stdout; echo error > /dev/stderr
        { id -u; id -g; id -G; echo $USER $LOGNAME $HOME $SHELL; umask; } | paste -sd, > who
        while :; do sleep 0.05; done";
    let task = of(ADA, text);
    leader.want([task.clone()]);
    leader.eventually_task("running", running).await;
    let nobody = account(NOBODY);
    let (uid, gid) = (nobody.uid, nobody.gid);
    let who = host.scratch_file(&task, "who");
    let (home, shell) = (nobody.home.display(), nobody.shell.display());
    assert_eq!(
        who,
        format!(
            "{uid},{gid},{},{NOBODY} {NOBODY} {home} {shell},0022",
            groups(NOBODY)
        )
    );
    let process = host.directory(&task).process().unwrap().unwrap();
    let all = |number: u32| [number; 4].map(|it| it.to_string()).join(" ");
    assert_eq!(status(process.pid, "Uid:"), all(uid));
    assert_eq!(status(process.pid, "Gid:"), all(gid));
    assert_eq!(status(process.pid, "NoNewPrivs:"), "1");
    for field in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        let bits = status(process.pid, field);
        assert!(bits.bytes().all(|bit| bit == b'0'), "{field} {bits}");
    }
    let supervisor = host.directory(&task).supervisor().unwrap().unwrap();
    assert_eq!(status(supervisor.pid, "Uid:"), all(0));

    // It ignores the signal, and is killed nevertheless.
    let stopping = TaskAssignment {
        stop: Some(StopInstruction {
            reason: "cancel".to_owned(),
            grace_ms: 200,
        }),
        ..task.clone()
    };
    leader.want([stopping]);
    let exit = leader.eventually_task("the end", exited).await;
    assert_eq!(exit.signal, Some(9));
    assert!(is_gone(&process.pid.to_string()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_has_access_to_its_own_files_and_to_none_of_others() {
    if !is_root() {
        return;
    }
    let leader = Leader::start(3).await;
    let host = Host::start_with(&[&leader], submitters);
    let first = of(
        ADA,
        "umask 0; echo mine > own; echo > ready; while :; do sleep 0.05; done",
    );
    leader.want([first.clone()]);
    leader.eventually_task("running", running).await;
    host.scratch_file(&first, "ready");
    let directory = host.directory(&first);
    let data = host.home.path().join("w");
    // Attempts by another user, with the paths that it may guess. It prints those that succeeded.
    let text = format!(
        "cd /; T={task}; D={data}
        try() {{ name=$1; shift; if \"$@\" > /dev/null 2>&1; then echo $name; fi; }}
        try scratch touch $T/scratch/new; try own cat $T/scratch/own; try control touch $T/ctl/preempt
        try socket test -w $T/ctl/ctl.sock; try agent test -w $T/agent.sock; try spec cat $T/spec.json
        try tasks ls $D/tasks/; try task ls $T/; try data ls $D; try logs ls $D/logs; try journal cat $D/journal
        try identity cat $D/identity.json; try scratches ls $D/scratch; try kept ls $D/kept
        try checkpoints ls $D/checkpoints; try theirs ls $D/checkpoints/7/0; try kill kill -0 {pid}
        try memory ls $(dirname $(readlink $D/tasks || echo /nowhere/x))
        echo end",
        task = directory.path().display(),
        data = data.display(),
        pid = directory.process().unwrap().unwrap().pid,
    );
    let mut second = of(DAEMON, &text);
    second.key.job = JobId(8);
    leader.want([first.clone(), second.clone()]);
    let exit = leader.eventually_task("the end", exited).await;
    assert_eq!(exit.code, Some(0), "{exit:?}");
    let printed = printed(&host, &second);
    assert_eq!(printed, "end\n");
    let folder = fs::metadata(directory.scratch()).unwrap();
    assert_eq!(folder.uid(), account(NOBODY).uid);
}

/// Output of a task.
fn printed(host: &Host, task: &TaskAssignment) -> String {
    let entries = fs::read_dir(host.logs(task)).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("std")
    });
    paths.sort();
    let texts = paths.iter().map(|path| fs::read_to_string(path).unwrap());
    texts.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_of_an_account_saves_by_its_socket_and_by_files_and_receives_a_stop() {
    if !is_root() {
        return;
    }
    let leader = Leader::start(3).await;
    let host = Host::start_with(&[&leader], submitters);
    let program = host.home.path().join("fixture");
    let text = format!(
        "trap '' TERM; mkdir $MUSTER_CKPT_DIR/step_1 && {} commit 1 || exit 9
        mkdir $MUSTER_CKPT_DIR/step_2; echo > $MUSTER_CKPT_DIR/step_2/_COMMITTED
        until [ -r $MUSTER_CTL_DIR/preempt ]; do sleep 0.02; done; cat $MUSTER_CTL_DIR/preempt; exit 0",
        program.display()
    );
    let task = of(ADA, &text);
    leader.want([task.clone()]);
    leader
        .eventually_task("both checkpoints", |task| {
            let steps: Vec<u64> = task.checkpoints.iter().map(|it| it.step).collect();
            (steps == [1, 2]).then_some(())
        })
        .await;
    // Writes by root must not follow a link of the task.
    let (victim, trap) = (
        host.home.path().join("victim"),
        host.directory(&task).control().join("preempt.new"),
    );
    fs::write(&victim, "untouched").unwrap();
    symlink(&victim, &trap).unwrap();
    let stopping = TaskAssignment {
        stop: Some(StopInstruction {
            reason: "drain".to_owned(),
            grace_ms: 30_000,
        }),
        ..task.clone()
    };
    leader.want([stopping]);
    let exit = leader.eventually_task("the end", exited).await;
    assert_eq!(exit.code, Some(0), "{exit:?}");
    assert!(printed(&host, &task).contains("drain"));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
    let folder = host.home.path().join("w/checkpoints/7/0");
    let (folder, nobody) = (fs::metadata(folder).unwrap(), account(NOBODY));
    assert_eq!((folder.uid(), folder.mode() & 0o777), (nobody.uid, 0o700));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_beside_a_task_is_the_tasks_account_with_a_terminal_and_without() {
    if !is_root() {
        return;
    }
    let leader = Leader::start(3).await;
    let host = Host::start_with(&[&leader], submitters);
    let task = of(ADA, "echo mine > own; sleep 1000");
    leader.want([task.clone()]);
    leader.eventually_task("running", running).await;
    host.scratch_file(&task, "own");
    let nobody = account(NOBODY);
    for (token, window) in [
        ("1", None),
        (
            "2",
            Some(v1::WindowSize {
                columns: 80,
                rows: 24,
            }),
        ),
    ] {
        let text = "id -u; cat own; grep NoNewPrivs /proc/self/status; echo opened > /dev/stdout";
        let order = v1::ExecOrder {
            token: token.to_owned(),
            epoch: task.epoch.get(),
            open: Some(v1::ExecOpen {
                job_id: task.key.job.get(),
                task: task.key.task.get(),
                author: ADA.to_owned(),
                command: ["sh", "-c", text].map(str::to_owned).to_vec(),
                window,
                terminal: "dumb".to_owned(),
                by_admin: false,
            }),
        };
        leader.send(LeaderKind::Exec(order));
        let responses = leader
            .eventually("the command's end", |inner| {
                let (_, responses) = inner.execs.get(token)?;
                let is_over = matches!(
                    responses.last(),
                    Some(ResponseKind::End(_) | ResponseKind::Refused(_))
                );
                is_over.then(|| responses.clone())
            })
            .await;
        let bytes = responses.iter().flat_map(|kind| match kind {
            ResponseKind::Stdout(bytes) => bytes.to_vec(),
            _ => Vec::new(),
        });
        let text = String::from_utf8(bytes.collect())
            .unwrap()
            .replace('\r', "");
        let expected = format!("{}\nmine\nNoNewPrivs:\t1\nopened\n", nobody.uid);
        assert_eq!(text, expected, "{responses:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_whose_account_may_not_run_tasks_is_refused_by_name() {
    if !is_root() {
        return;
    }
    let leader = Leader::start(3).await;
    let host = Host::start_with(&[&leader], submitters);
    for (user, way_out) in [("root", "tasks.allow_root"), ("eve", "tasks.users")] {
        let mut task = of(user, "echo > /muster-test-refused");
        task.key.job = JobId(if user == "root" { 7 } else { 8 });
        let exit = refused(&leader, task).await;
        let why = exit.start_error.unwrap();
        assert!(
            why.starts_with("NO_ACCOUNT") && why.contains(&format!("`{user}`")),
            "{why}"
        );
        assert!(why.contains(way_out), "{why}");
        leader.want([]);
        leader
            .eventually("forgotten", |inner| {
                inner.status.as_ref()?.tasks.is_empty().then_some(())
            })
            .await;
    }
    // A program that only root may run does not exist for others, and neither does a folder.
    let closed = host.home.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
    let mut task = of(ADA, "true");
    task.key.job = JobId(9);
    task.working_directory = Some(closed.display().to_string());
    let why = refused(&leader, task).await.start_error.unwrap();
    assert!(why.contains("is not open to the account"), "{why}");
}

/// Error of an agent with invalid settings.
fn ends_with(change: impl FnOnce(&mut WorkerConfig, &Path)) -> String {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let leader = runtime.block_on(Leader::start(3));
    let mut host = Host::start_with(&[&leader], change);
    eventually("the agent's end", || {
        host.agent.try_wait().unwrap().is_some()
    });
    let mut text = String::new();
    let mut errors = host.agent.stderr.take().unwrap();
    std::io::Read::read_to_string(&mut errors, &mut text).unwrap();
    text
}

#[test]
fn an_agent_does_not_start_with_an_account_that_is_not_there_or_as_root_by_accident() {
    if !is_root() {
        return;
    }
    let named = |run_as: &str| {
        let run_as = RunAs::from(run_as.to_owned());
        ends_with(move |config, home| {
            fs::set_permissions(home, Permissions::from_mode(0o700)).unwrap();
            config.tasks = TasksConfig {
                run_as,
                ..TasksConfig::default()
            };
        })
    };
    for (run_as, expected) in [
        ("no-such-account", "no account `no-such-account`"),
        ("root", "tasks.allow_root"),
        ("agent", "tasks.allow_root"),
        // This agent has no certificates.
        ("auto", "tasks.allow_root"),
        // Others may not traverse the home of this host.
        (NOBODY, "chmod o+x"),
    ] {
        let error = named(run_as);
        assert!(error.contains(expected), "{run_as}: {error}");
    }
}

#[test]
fn an_agent_does_not_start_with_a_run_folder_of_another_user() {
    if !is_root() {
        return;
    }
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let (theirs, link) = (memory.path().join("theirs"), memory.path().join("link"));
    fs::create_dir(&theirs).unwrap();
    symlink(&theirs, &link).unwrap();
    chown(&theirs, Some(account(NOBODY).uid), None).unwrap();
    for run in [theirs, link] {
        let chosen = run.clone();
        let error = ends_with(move |config, home| {
            submitters(config, home);
            config.run_dir = Some(chosen);
        });
        let name = run.display().to_string();
        assert!(
            error.contains(&name) && error.contains("`run_dir`"),
            "{error}"
        );
        assert!(error.contains("of the user "), "{error}");
    }
}
