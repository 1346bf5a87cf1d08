//! Task output and exec sessions through any replica.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use muster_client::Client;
use muster_proto::v1;
use muster_proto::v1::job_service_client::JobServiceClient;
use muster_tests::{
    Cluster, Shape, TIMEOUT, eventually, only_attempt, printed, shell, submit, with_gpus,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;
use tokio::time::{sleep, timeout};
use tonic::transport::Endpoint;

/// Pause of a reader: connections of clients are closed after 4 s without a sign of life.
const PAUSE: Duration = Duration::from_secs(8);
/// More than all buffers on the way to a reader can hold.
const LONG_OUTPUT_BYTES: usize = 64 << 20;
/// Number of readers that do not read; the amount of unread data follows: more than one connection buffers.
const IDLE_READERS: usize = 4;
/// Unread bytes per reader; see [`IDLE_READERS`].
const UNREAD_BYTES: usize = 16 << 20;
/// Maximum time of a submission that is not held up.
const SUBMISSION_MAX: Duration = Duration::from_secs(10);

const SMALL: Shape = Shape {
    replicas: 1,
    workers: 1,
    gpus: 2,
};
/// The same with followers that relay, and leaders that die.
const REPLICATED: Shape = Shape {
    replicas: 3,
    ..SMALL
};

/// The command line with the job's number inserted.
async fn muster(cluster: &Cluster, job: &str, args: &[&str]) -> muster_tests::Run {
    let args: Vec<&str> = args
        .iter()
        .map(|word| if *word == "JOB" { job } else { word })
        .collect();
    cluster.muster(&args).await
}

#[tokio::test]
async fn output_is_read_by_stream_attempt_time_and_task() {
    let cluster = Cluster::start(SMALL).await;
    let client = cluster.client().await;
    // Fails once, and prints on both outputs at different times.
    let script = "echo out $MUSTER_ATTEMPT $MUSTER_TASK_INDEX; sleep 0.05; echo err >&2; sleep 0.05; echo last; \
                  [ $MUSTER_ATTEMPT = 2 ]";
    let mut spec = shell(script);
    spec.groups[0].count = Some(2);
    spec.retry = Some(v1::RetryPolicy {
        retries_max: 1,
        backoff_ms: 1,
    });
    let id = client.submit_job(spec).await.unwrap().job;
    let ended = client.wait_job(id).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded, "{ended:?}");
    let job = id.to_string();
    let logs = async |more: &[&str]| {
        let args = [&["job", "logs", "JOB"], more].concat();
        muster(&cluster, &job, &args).await
    };
    assert_eq!(logs(&[]).await.ok(), "out 2 0\nerr\nlast\n");
    assert_eq!(logs(&["--attempt", "1"]).await.ok(), "out 1 0\nerr\nlast\n");
    assert_eq!(logs(&["--stderr"]).await.ok(), "err\n");
    assert_eq!(
        logs(&["--stream", "stdout", "--tail", "1"]).await.ok(),
        "last\n"
    );
    let all = logs(&["--all-attempts", "--task", "1", "--stream", "stdout"]).await;
    assert_eq!(all.ok(), "out 1 1\nlast\nout 2 1\nlast\n");
    let marked = logs(&["--task", "all", "--prefix"]).await.ok();
    assert_eq!(
        marked.lines().collect::<Vec<&str>>()[2..4],
        ["[task 0 stdout] last", "[task 1 stdout] out 2 1"]
    );
    assert_eq!(logs(&["--until", "1h"]).await.ok(), "");
    let lines = logs(&["-o", "jsonl"]).await.ok();
    let second: Value = serde_json::from_str(lines.lines().nth(1).unwrap()).unwrap();
    assert_eq!(
        (&second["stream"], &second["text"]),
        (&"stderr".into(), &"err".into())
    );
    let since = second["time"].as_str().unwrap();
    assert_eq!(logs(&["--since", since]).await.ok(), "err\nlast\n");
    let missing = logs(&["--attempt", "5"]).await;
    let message = "kept attempts, newest first: 2 (epoch ";
    assert!(
        missing.code == 1 && missing.stderr.contains(message),
        "{missing:?}"
    );

    // Unreadable output is reported, even with notes disabled.
    let some = logs(&["--task", "0,9", "--quiet", "--stderr"]).await;
    assert_eq!(
        (some.code, &*some.stdout),
        (1, "[task 0] err\n"),
        "{some:?}"
    );
    assert!(some.stderr.contains("has no task 9"), "{some:?}");

    // Duration of one attempt.
    let args = [
        "job",
        "events",
        "JOB",
        "--task",
        "1",
        "--attempt",
        "2",
        "-o",
        "jsonl",
    ];
    let events = muster(&cluster, &job, &args).await.ok();
    let kind = |line: &str| serde_json::from_str::<Value>(line).unwrap()["kind"].clone();
    let kinds: Vec<Value> = events.lines().map(kind).collect();
    let expected = [
        "attempt_placed",
        "task_started",
        "attempt_running",
        "task_exited",
        "attempt_ended",
    ];
    assert_eq!(kinds, expected, "{events}");
    let args = [
        "job",
        "events",
        "JOB",
        "--kind",
        "task_exited",
        "-o",
        "jsonl",
    ];
    let events = muster(&cluster, &job, &args).await.ok();
    assert_eq!(events.lines().count(), 4, "{events}");
}

/// Starts an endless command through a follower; returns the leader that pairs it with the task. If the
/// leader changed meanwhile, it is unknown which one does: then it is started again.
async fn beside_until_leader_dies(cluster: &Cluster, client: &Client, job: &str) -> (usize, Child) {
    loop {
        let term = term(client).await;
        let leader = cluster.leader(client).await;
        let address = &cluster.addresses[(leader + 1) % 3];
        let args = ["job", "exec", job, "--address", address, "-n", "--"];
        let up = format!("up-{term}");
        let script = format!("echo up > {up}; sleep 87654.5");
        let rest = ["sh", "-c", &script];
        let mut command = cluster.command(&[&args[..], &rest].concat());
        let beside = command.kill_on_drop(true).spawn().unwrap();
        eventually("the command runs", async || {
            let args = ["job", "exec", "JOB", "--", "cat", &up];
            let run = muster(cluster, job, &args).await;
            (run.stdout == "up\n").then_some(())
        })
        .await;
        if self::term(client).await == term {
            return (leader, beside);
        }
    }
}

async fn term(client: &Client) -> u64 {
    eventually("a replica leads", async || {
        let status = client.status(v1::Consistency::Linearizable).await.ok()?;
        Some(status.term)
    })
    .await
}

#[tokio::test]
async fn a_command_runs_beside_its_task_through_every_replica() {
    let mut cluster = Cluster::start(REPLICATED).await;
    let client = cluster.client().await;
    // The exec session is killed when the task ends, so the task gives the command that ends it a moment.
    let script =
        "echo mine > file; echo ready; while [ ! -e done ]; do sleep 0.05; done; sleep 2; echo bye";
    let id = client.submit_job(shell(script)).await.unwrap().job;
    only_attempt(&client, id).await;
    printed(&client, id, 1).await;
    let job = id.to_string();
    for address in cluster.addresses.clone() {
        let args = ["job", "exec", &job, "--address", &address, "--"];
        let args = [
            &args[..],
            &["sh", "-c", "cat; cat file; echo $MUSTER_JOB_ID >&2; exit 7"],
        ]
        .concat();
        let run = cluster.muster_reading(&args, "typed\n").await;
        assert_eq!(
            (run.code, run.stdout.as_str(), run.stderr.as_str()),
            (7, "typed\nmine\n", format!("{job}\n").as_str()),
            "{address}"
        );
    }
    // Not in another user's task, and not in a task that is not running.
    let mut other = cluster.command(&["job", "exec", &job, "--", "true"]);
    other.env("MUSTER_USER", "eve");
    let refused = muster_tests::Run::of(other, "").await;
    assert!(
        refused.code == 1 && refused.stderr.contains("only its user `ada`"),
        "{refused:?}"
    );
    let none = muster(
        &cluster,
        &job,
        &["job", "exec", "JOB", "--task", "3", "--", "true"],
    )
    .await;
    assert!(none.stderr.contains("has no task 3"), "{none:?}");

    // A command ends with the replica that led when it started, whichever it was sent to.
    let (leader, mut beside) = beside_until_leader_dies(&cluster, &client, &job).await;
    cluster.replicas[leader].kill();
    let status = beside.wait().await.unwrap();
    assert_eq!(status.code(), Some(1));
    eventually("the command's end", async || {
        let args = [
            "job",
            "exec",
            "JOB",
            "--",
            "sh",
            "-c",
            "pgrep -f 'sleep 87654.[5]' || echo none",
        ];
        let run = muster(&cluster, &job, &args).await;
        (run.stdout == "none\n").then_some(())
    })
    .await;
    cluster.replicas[leader].start();

    // The task has survived all of it.
    let done = muster(
        &cluster,
        &job,
        &["job", "exec", "JOB", "--", "touch", "done"],
    )
    .await;
    assert_eq!(done.code, 0, "{done:?}");
    let ended = client.wait_job(id).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded);
    assert_eq!(ended.units[0].attempts, 1);
    let over = muster(&cluster, &job, &["job", "exec", "JOB", "--", "true"]).await;
    assert!(over.stderr.contains("is not running"), "{over:?}");
}

#[tokio::test]
async fn a_worker_ships_the_output_of_its_tasks() {
    let mut cluster = Cluster::start(SMALL).await;
    let client = cluster.client().await;
    let shipped = cluster.folder.join("shipped");
    let program = format!(
        "echo $MUSTER_JOB_ID $MUSTER_ATTEMPT $MUSTER_LOG_STREAM $(cat $MUSTER_LOG_SEGMENT) >> {}",
        shipped.display()
    );
    let ships = cluster.add_worker("ships", |settings| {
        settings["gpus"] =
            json!({"simulated": {"count": 1, "model": "SPECIAL", "memory_mib": 1024}});
        settings["log_shipping"] = json!({"command": ["sh", "-c", program]});
    });
    cluster.workers[ships].start();
    let mut spec = with_gpus(shell("echo hello; echo there >&2"), 1);
    let resources = spec.groups[0].resources.get_or_insert_default();
    resources.gpu_models = vec!["SPECIAL".to_owned()];
    let job = client.submit_job(spec).await.unwrap().job;
    let expected = [
        format!("{job} 1 stderr there"),
        format!("{job} 1 stdout hello"),
    ];
    eventually("both outputs are shipped", async || {
        let text = std::fs::read_to_string(&shipped).ok()?;
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        (lines == expected).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_attached_task_is_followed_and_detached_without_harm() {
    let cluster = Cluster::start(SMALL).await;
    let client = cluster.client().await;
    let script = "for line in $(seq 30); do echo before $line; done; while [ ! -e done ]; do sleep 0.05; done; \
                  while :; do echo after; sleep 0.05; done";
    let id = client.submit_job(shell(script)).await.unwrap().job;
    only_attempt(&client, id).await;
    printed(&client, id, 30).await;
    let job = id.to_string();
    let seen = cluster.write("seen", "");
    let mut attached = cluster.command(&["job", "attach", &job, "--tail", "2"]);
    attached.stdout(File::create(&seen).unwrap());
    attached.stderr(std::process::Stdio::piped());
    let attached = attached.kill_on_drop(true).spawn().unwrap();
    let read = || std::fs::read_to_string(&seen).unwrap();
    eventually("the last lines", async || {
        read().contains("before 30").then_some(())
    })
    .await;
    assert!(!read().contains("before 28"), "{}", read());
    let done = muster(
        &cluster,
        &job,
        &["job", "exec", "JOB", "--", "touch", "done"],
    )
    .await;
    assert_eq!(done.code, 0, "{done:?}");
    eventually("new lines", async || read().contains("after").then_some(())).await;
    let pid = i32::try_from(attached.id().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let detached = attached.wait_with_output().await.unwrap();
    let stderr = String::from_utf8_lossy(&detached.stderr).into_owned();
    assert!(
        detached.status.success() && stderr.contains("detached"),
        "{stderr}"
    );
    assert_eq!(only_attempt(&client, id).await.number, 1);
}

/// A terminal of 100 columns and 30 rows: its master side, and the side for a program.
fn terminal() -> (File, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    let theirs = File::options().read(true).write(true).open(name).unwrap();
    let size = rustix::termios::Winsize {
        ws_col: 100,
        ws_row: 30,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&theirs, size).unwrap();
    (ours.into(), theirs)
}

#[tokio::test]
async fn an_exec_session_has_a_terminal_like_its_users() {
    let cluster = Cluster::start(SMALL).await;
    let client = cluster.client().await;
    let id = client
        .submit_job(shell("exec sleep 1000"))
        .await
        .unwrap()
        .job;
    only_attempt(&client, id).await;
    let job = id.to_string();
    let (mut ours, theirs) = terminal();
    let before = rustix::termios::tcgetattr(&theirs).unwrap();
    let script = "stty size; read word; echo got $word; exec sleep 1000";
    let mut command = cluster.command(&["job", "exec", &job, "--tty", "--", "sh", "-c", script]);
    command.stdin(theirs.try_clone().unwrap());
    command.stdout(theirs.try_clone().unwrap());
    command.stderr(theirs.try_clone().unwrap());
    let mut running = command.kill_on_drop(true).spawn().unwrap();
    let seen = Arc::new(Mutex::new(String::new()));
    let (mut screen, shown) = (ours.try_clone().unwrap(), Arc::clone(&seen));
    std::thread::spawn(move || {
        let mut bytes = [0; 1024];
        // It ends with the last program that has the terminal open.
        while let Ok(count @ 1..) = screen.read(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
            shown.lock().unwrap().push_str(&text);
        }
    });
    let shows = |text: &str| seen.lock().unwrap().contains(text).then_some(());
    eventually("the size", async || shows("30 100")).await;
    ours.write_all(b"hello\r").unwrap();
    eventually("what was typed", async || shows("got hello")).await;
    // ^C goes to the remote command, not to the command line.
    ours.write_all(&[3]).unwrap();
    assert_eq!(running.wait().await.unwrap().code(), Some(130));
    let after = rustix::termios::tcgetattr(&theirs).unwrap();
    assert_eq!(after.local_modes, before.local_modes);
}

#[tokio::test]
async fn a_reader_that_pauses_loses_nothing_of_a_command() {
    let cluster = Cluster::start(SMALL).await;
    let client = cluster.client().await;
    let id = submit(&client, shell("sleep 87654.25")).await;
    only_attempt(&client, id).await;
    let (job, bytes) = (id.to_string(), LONG_OUTPUT_BYTES.to_string());
    let args = [
        "job",
        "exec",
        &job,
        "-n",
        "--",
        "head",
        "-c",
        &bytes,
        "/dev/zero",
    ];
    let mut command = cluster.command(&args);
    let reading = command.stdout(Stdio::piped()).kill_on_drop(true).spawn();
    sleep(PAUSE).await;
    let read = timeout(TIMEOUT, reading.unwrap().wait_with_output()).await;
    let read = read.unwrap().unwrap();
    assert!(read.status.success(), "{:?}", read.status);
    assert_eq!(read.stdout.len(), LONG_OUTPUT_BYTES);
}

#[tokio::test]
async fn idle_readers_do_not_delay_writes_through_their_replica() {
    let cluster = Cluster::start(REPLICATED).await;
    let client = cluster.client().await;
    let script = format!("head -c {UNREAD_BYTES} /dev/zero; exec sleep 1000");
    let id = submit(&client, shell(&script)).await;
    only_attempt(&client, id).await;
    let follower = (cluster.leader(&client).await + 1) % 3;
    let address = &cluster.addresses[follower];
    let mut unread = Vec::new();
    for _ in 0..IDLE_READERS {
        // Each has a connection to its replica, like any other client.
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let mut reader = JobServiceClient::new(endpoint.connect().await.unwrap());
        let request = v1::StreamLogsRequest {
            job_id: id.get(),
            stream: v1::LogStream::Stdout.into(),
            follow: true,
            ..v1::StreamLogsRequest::default()
        };
        let pieces = reader.stream_logs(request).await.unwrap().into_inner();
        unread.push((reader, pieces));
    }
    // Until all buffers on the way are full.
    sleep(PAUSE).await;
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut other = JobServiceClient::new(endpoint.connect().await.unwrap());
    let submitted = other.submit_job(v1::SubmitJobRequest {
        request_id: "not held up".to_owned(),
        spec: Some(shell("true")),
        ..v1::SubmitJobRequest::default()
    });
    let submitted = timeout(SUBMISSION_MAX, submitted).await;
    assert!(matches!(submitted, Ok(Ok(_))), "{submitted:?}");
}

#[tokio::test]
async fn tasks_without_output_yet_do_not_fail_those_that_have_some() {
    let cluster = Cluster::start(SMALL).await;
    let client = cluster.client().await;
    // Two find a GPU, the third one waits.
    let mut spec = with_gpus(shell("echo here; sleep 87654.625"), 1);
    spec.groups[0].count = Some(3);
    let job = submit(&client, spec).await.to_string();
    let args = ["job", "logs", "JOB", "--task", "all"];
    eventually("both running ones have printed", async || {
        let run = muster(&cluster, &job, &args).await;
        let printed = run.stdout.matches("here\n").count();
        (run.code == 0 && printed == 2).then_some(())
    })
    .await;
    let mut spec = with_gpus(shell("true"), 2);
    spec.groups[0].count = Some(2);
    let waits = submit(&client, spec).await.to_string();
    let run = muster(&cluster, &waits, &[&args[..], &["-q"]].concat()).await;
    assert_eq!((run.code, &*run.stdout), (1, ""), "{run:?}");
    assert!(run.stderr.contains("none of these 2 tasks"), "{run:?}");
}

#[tokio::test]
async fn a_task_that_a_job_does_not_have_is_not_waited_for() {
    let cluster = Cluster::start(SMALL).await;
    let client = cluster.client().await;
    for gang in [false, true] {
        let mut spec = shell("sleep 87654.375");
        spec.groups[0].count = Some(2);
        spec.gang = gang;
        let job = submit(&client, spec).await.to_string();
        let message = format!(
            "error: cannot read the task's output: job {job} has no task 9: its last one is 1"
        );
        for args in [
            &["logs", "JOB"][..],
            &["logs", "JOB", "-f"],
            &["logs", "JOB", "--all-attempts"],
            &["attach", "JOB"],
        ] {
            let args = [&["job"], args, &["--task", "9"]].concat();
            let run = muster(&cluster, &job, &args).await;
            assert_eq!((run.code, &*run.stdout), (1, ""), "{args:?}: {run:?}");
            assert!(run.stderr.starts_with(&message), "{args:?}: {run:?}");
        }
    }
}

#[tokio::test]
async fn a_followed_task_is_followed_to_another_host() {
    let mut cluster = Cluster::start(Shape {
        workers: 2,
        ..SMALL
    })
    .await;
    let client = cluster.client().await;
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("first");
    let script = format!(
        "mkdir {} 2>/dev/null && echo first || echo second; sleep 87654.75",
        first.display()
    );
    let mut spec = with_gpus(shell(&script), 1);
    spec.partition_grace_ms = Some(10_000);
    let id = submit(&client, spec).await;
    let attempt = only_attempt(&client, id).await;
    let mut command = cluster.command(&["job", "logs", "-f", &id.to_string()]);
    let mut reader = command
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(reader.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "first");

    let host = &attempt.tasks[0].host;
    let worker = cluster.workers.iter().position(|it| it.name == *host);
    let worker = worker.unwrap();
    cluster.workers[worker].kill();
    for pid in cluster.processes_on(worker) {
        muster_tests::kill(pid);
    }
    let line = timeout(TIMEOUT, lines.next_line()).await;
    assert_eq!(line.unwrap().unwrap().unwrap(), "second");
}

/// Runs a command whose reader has gone away; returns its exit code.
async fn unread(cluster: &Cluster, args: &[&str]) -> Option<i32> {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = cluster.command(args);
    command.stdout(writer).kill_on_drop(true);
    let ended = timeout(TIMEOUT, command.status()).await;
    ended.unwrap().unwrap().code()
}

#[tokio::test]
async fn the_exit_code_of_a_command_does_not_depend_on_its_output_being_read() {
    let cluster = Cluster::start(SMALL).await;
    let client = cluster.client().await;
    let failed = client.submit_job(shell("exit 9")).await.unwrap().job;
    let failed = failed.to_string();
    let args = ["job", "wait", &failed];
    assert_eq!(unread(&cluster, &args).await, Some(3));
    let args = ["job", "submit", "--wait", "--", "false"];
    assert_eq!(unread(&cluster, &args).await, Some(3));

    let runs = submit(&client, shell("sleep 87654.125")).await;
    only_attempt(&client, runs).await;
    // Like a shell that reports a command whose output is closed.
    let beside = runs.to_string();
    let args = ["job", "exec", &beside, "-n", "--", "yes"];
    assert_eq!(unread(&cluster, &args).await, Some(141));
    let mut jobs = vec![runs];
    for _ in 0..2 {
        jobs.push(submit(&client, shell("sleep 87654.125")).await);
    }
    let ids: Vec<String> = jobs.iter().map(ToString::to_string).collect();
    let mut args = vec!["job", "cancel"];
    args.extend(ids.iter().map(String::as_str));
    assert_eq!(unread(&cluster, &args).await, Some(0));
    for job in jobs {
        let ended = client.wait_job(job).await.unwrap();
        assert_eq!(ended.phase(), v1::JobPhase::Cancelled, "job {job}");
    }
}
