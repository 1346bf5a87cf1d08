//! Complete gangs as real processes: killed, preempted, damaged, and resumed to the same bits.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use muster_ports::ReservedAddresses;
use serde_json::Value;

const RANKS: usize = 4;
const STEPS: u64 = 150;
/// Maximum wait for a state, also on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A folder for one job, and how its gang is started.
struct Job {
    home: tempfile::TempDir,
}

impl Job {
    fn new() -> Self {
        Self {
            home: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    fn checkpoints(&self) -> PathBuf {
        self.home.path().join("checkpoints")
    }

    fn control(&self) -> PathBuf {
        self.home.path().join("control")
    }

    fn rank(&self, rank: usize, port: u16, extra: &[(&str, &str)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster-trainer"));
        let report = self.home.path().join("report.json");
        command
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", RANKS.to_string())
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", port.to_string())
            .env("MUSTER_CKPT_DIR", self.checkpoints())
            .env("MUSTER_CTL_DIR", self.control())
            .envs(extra.iter().copied())
            .args([
                "--steps",
                &STEPS.to_string(),
                "--checkpoint-steps",
                "10",
                "--step-ms",
                "2",
            ])
            .arg("--report")
            .arg(report)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts all ranks; `extra` is added to their environment.
    fn start(&self, extra: &[(&str, &str)]) -> Vec<Child> {
        let reserved = ReservedAddresses::draw(1).expect("a free port");
        let port = reserved.addresses()[0].port();
        (0..RANKS)
            .map(|rank| self.rank(rank, port, extra).spawn().expect("start a rank"))
            .collect()
    }

    /// Runs a gang without faults and returns its report.
    fn run(&self, extra: &[(&str, &str)]) -> Value {
        for output in finish(self.start(extra)) {
            assert!(output.status.success(), "{}", text(&output));
        }
        let report = fs::read(self.home.path().join("report.json")).expect("a report");
        serde_json::from_slice(&report).expect("a report in JSON")
    }

    /// The newest committed checkpoint.
    fn latest(&self) -> Option<(u64, PathBuf)> {
        let entries = fs::read_dir(self.checkpoints()).ok()?;
        let committed = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.join("_COMMITTED").exists());
        committed
            .filter_map(|path| Some((step_of(&path)?, path)))
            .max()
    }

    fn await_checkpoint(&self, step: u64) {
        poll("a checkpoint", || {
            self.latest().is_some_and(|(latest, _)| latest >= step)
        });
    }

    /// Resumes from the newest checkpoint to the end.
    fn resume(&self) -> Value {
        let (step, path) = self.latest().expect("a checkpoint to resume from");
        let report = self.resume_from(&path);
        assert_eq!(report["resumed_from"], step);
        report
    }

    /// Resumes from a checkpoint, or an earlier one, to the end.
    fn resume_from(&self, path: &Path) -> Value {
        self.run(&[("MUSTER_CKPT_LATEST", path.to_str().expect("a UTF-8 path"))])
    }
}

fn step_of(path: &Path) -> Option<u64> {
    path.file_name()?
        .to_str()?
        .strip_prefix("step_")?
        .parse()
        .ok()
}

fn finish(ranks: Vec<Child>) -> Vec<Output> {
    ranks
        .into_iter()
        .map(|rank| rank.wait_with_output().expect("wait for a rank"))
        .collect()
}

fn text(output: &Output) -> String {
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    format!("{:?}\n{stdout}{stderr}", output.status)
}

#[expect(clippy::disallowed_methods, reason = "a poll with a deadline")]
fn poll(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(
            Instant::now() < deadline,
            "{what} did not come within {TIMEOUT:?}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn undisturbed() -> Value {
    Job::new().run(&[])
}

#[test]
fn a_gang_that_lost_a_rank_to_kill_9_resumes_to_the_bits_of_an_undisturbed_run() {
    let wanted = undisturbed();
    assert!(wanted["loss_final"].as_f64() < wanted["loss_first"].as_f64());
    assert!(wanted["accuracy"].as_f64() > Some(0.8), "{wanted}");

    let job = Job::new();
    let mut ranks = job.start(&[]);
    job.await_checkpoint(30);
    ranks[2].kill().expect("kill rank 2");
    for (rank, output) in finish(ranks).iter().enumerate() {
        assert!(
            !output.status.success(),
            "rank {rank} continued without rank 2: {}",
            text(output)
        );
        if rank != 2 {
            assert!(text(output).contains("is gone"), "{}", text(output));
        }
    }
    let report = job.resume();
    assert_eq!(report["weights_digest"], wanted["weights_digest"]);
    assert_eq!(report["loss_first"], wanted["loss_first"]);
    assert_eq!(report["steps"], STEPS);
    assert_eq!(report["restarts"], 1);
}

#[test]
fn a_preempt_flag_seen_by_the_gang_saves_one_step_and_exits_75() {
    let job = Job::new();
    let ranks = job.start(&[]);
    job.await_checkpoint(10);
    fs::create_dir_all(job.control()).expect("the control folder");
    fs::write(job.control().join("preempt"), r#"{"reason":"preempt"}"#).expect("the flag");
    for output in finish(ranks) {
        assert_eq!(output.status.code(), Some(75), "{}", text(&output));
    }
    fs::remove_file(job.control().join("preempt")).expect("lower the flag");
    assert_eq!(
        job.resume()["weights_digest"],
        undisturbed()["weights_digest"]
    );
}

#[test]
fn stubborn_ranks_ignore_the_flag_and_sigterm() {
    let job = Job::new();
    fs::create_dir_all(job.control()).expect("the control folder");
    fs::write(job.control().join("preempt"), "{}").expect("the flag");
    let reserved = ReservedAddresses::draw(1).expect("a free port");
    let port = reserved.addresses()[0].port();
    let ranks: Vec<Child> = (0..RANKS)
        .map(|rank| {
            job.rank(rank, port, &[])
                .arg("--stubborn")
                .spawn()
                .expect("start a rank")
        })
        .collect();
    job.await_checkpoint(10);
    for rank in &ranks {
        let pid = rustix::process::Pid::from_child(rank);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("SIGTERM");
    }
    for output in finish(ranks) {
        assert!(output.status.success(), "{}", text(&output));
    }
}

#[test]
fn sigterm_to_one_rank_makes_all_save_and_exit_75() {
    let job = Job::new();
    let ranks = job.start(&[]);
    job.await_checkpoint(10);
    let terminated = Command::new("kill").arg(ranks[3].id().to_string()).status();
    assert!(terminated.expect("run kill").success());
    for output in finish(ranks) {
        assert_eq!(output.status.code(), Some(75), "{}", text(&output));
    }
    assert_eq!(
        job.resume()["weights_digest"],
        undisturbed()["weights_digest"]
    );
}

/// Flips one bit of a checkpoint's state.
fn damage(checkpoint: &Path) {
    let file = checkpoint.join("state.bin");
    let mut bytes = fs::read(&file).expect("the state");
    bytes[500] ^= 4;
    fs::write(&file, bytes).expect("damage it");
}

#[test]
fn a_gang_whose_newest_checkpoint_is_damaged_resumes_from_the_previous_one() {
    let job = Job::new();
    job.run(&[]);
    let (_, path) = job.latest().expect("a checkpoint");
    damage(&path);
    let report = job.resume_from(&path);
    assert_eq!(report["weights_digest"], undisturbed()["weights_digest"]);
    let step = step_of(&path).expect("a step");
    assert_eq!(report["resumed_from"], step - 10);
}

#[test]
fn a_gang_without_an_intact_checkpoint_reports_it_and_is_not_retried() {
    let job = Job::new();
    job.run(&[]);
    let (_, path) = job.latest().expect("a checkpoint");
    for checkpoint in fs::read_dir(job.checkpoints())
        .expect("checkpoints")
        .flatten()
    {
        damage(&checkpoint.path());
    }
    let outputs =
        finish(job.start(&[("MUSTER_CKPT_LATEST", path.to_str().expect("a UTF-8 path"))]));
    assert_eq!(outputs[0].status.code(), Some(93), "{}", text(&outputs[0]));
    assert!(
        text(&outputs[0]).contains("state.bin is unusable: has checksum"),
        "{}",
        text(&outputs[0])
    );
    assert!(
        outputs[1..]
            .iter()
            .all(|output| output.status.code() == Some(1))
    );
}

#[test]
fn a_rank_of_another_attempt_is_refused() {
    let job = Job::new();
    let reserved = ReservedAddresses::draw(1).expect("a free port");
    let port = reserved.addresses()[0].port();
    let spawn = |rank, epoch, extra: &[&str]| {
        job.rank(rank, port, &[("MUSTER_EPOCH", epoch)])
            .args(extra)
            .spawn()
            .expect("start a rank")
    };
    let mut gang = vec![spawn(0, "8", &[])];
    let stranger = spawn(1, "7", &["--rendezvous-seconds", "1"]);
    let refused = stranger.wait_with_output().expect("wait for the stranger");
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused).contains("it refused: this is attempt"),
        "{}",
        text(&refused)
    );
    gang.extend((1..RANKS).map(|rank| spawn(rank, "8", &[])));
    for output in finish(gang) {
        assert!(output.status.success(), "{}", text(&output));
    }
}

#[test]
fn missing_ranks_are_named() {
    let job = Job::new();
    let reserved = ReservedAddresses::draw(1).expect("a free port");
    let port = reserved.addresses()[0].port();
    let start = |rank| {
        job.rank(rank, port, &[])
            .args(["--rendezvous-seconds", "1"])
            .spawn()
            .expect("start a rank")
    };
    let outputs = finish(vec![start(0), start(2)]);
    assert_eq!(outputs[0].status.code(), Some(1));
    assert!(
        text(&outputs[0]).contains("ranks 1, 3 did not come"),
        "{}",
        text(&outputs[0])
    );
    assert!(!outputs[1].status.success());
}

#[test]
fn wrong_ranks_are_refused_with_both_numbers() {
    let output = Job::new().rank(4, 1, &[]).output().expect("run a rank");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("RANK 4 is out of range: WORLD_SIZE is 4"),
        "{}",
        text(&output)
    );
}

#[test]
fn the_stand_in_job_exits_with_the_requested_code() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster-trainer"));
    let status = command
        .args(["busy", "--milliseconds", "5", "--exit-code", "3"])
        .status();
    assert_eq!(status.expect("run the stand-in").code(), Some(3));
}
