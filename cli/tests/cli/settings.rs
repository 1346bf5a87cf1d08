//! Settings of schedulers and workers, as the built binary reads them.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest wait for a service to react.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The root of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn muster(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
    command.args(args).env_clear().stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn check(file: &Path, role: &str) -> Output {
    let file = file.to_str().unwrap();
    muster(&["config", "check", "--role", role, file])
        .output()
        .unwrap()
}

#[test]
fn each_error_names_its_position_and_the_remedy() {
    let cases = [
        (
            "scheduler",
            "listn = \"[::1]:7400\"",
            "s.toml:1:1: listn: there is no such option; did you mean `listen`?",
        ),
        (
            "scheduler",
            "\n[raft]\nheartbeat = 5",
            "s.toml:3:1: raft.heartbeat: there is no such option; did you mean `raft.heartbeat_ms`?",
        ),
        (
            "scheduler",
            "heartbeat_ms = 5",
            "heartbeat_ms: there is no such option; did you mean `raft.heartbeat_ms`?",
        ),
        (
            "scheduler",
            "[zzz]\nq = 1",
            "s.toml:1:2: zzz: there is no such option\n",
        ),
        (
            "scheduler",
            "raft = 7",
            "raft: is a table of options: write [raft] and its options below",
        ),
        (
            "scheduler",
            "[raft]\nheartbeat_ms = \"5s\"",
            "s.toml:2:1: raft.heartbeat_ms: must be a whole number, 0 or more, not the text \"5s\"; the default is 50",
        ),
        (
            "scheduler",
            "[raft]\nheartbeat_ms = -1",
            "raft.heartbeat_ms: must be a whole number, 0 or more, not -1; the default is 50",
        ),
        (
            "scheduler",
            "bootstrap = \"yes\"",
            "bootstrap: must be true or false, not the text \"yes\"; the default is true",
        ),
        (
            "scheduler",
            "listen = \"here\"",
            "s.toml:1:1: listen: invalid socket address syntax; the default is \"127.0.0.1:7400\"",
        ),
        (
            "scheduler",
            "metrics_listen = 7",
            "metrics_listen: must be a text, not 7; the default is \"127.0.0.1:7401\"",
        ),
        (
            "scheduler",
            "admins = \"root\"",
            "admins: must be a list of texts, not the text \"root\"; the default is [\"root\"]",
        ),
        (
            "scheduler",
            "[peers]\none = \"a:1\"",
            "s.toml:1:2: peers: invalid value: expected key to be a number in quotes",
        ),
        (
            "scheduler",
            "[peers]\n1 = \"nowhere\"",
            "peers[1]: `nowhere` is not `host:port`",
        ),
        (
            "scheduler",
            "replica_id = 2",
            "peers: must contain this replica (2)",
        ),
        (
            "scheduler",
            "[raft]\nelection_ms_max = 7",
            "s.toml:2:1: raft.election_ms_max: must exceed election_ms_min (100); the default is 250",
        ),
        (
            "scheduler",
            "[limits]\nwatches_max = 0",
            "s.toml:2:1: limits.watches_max: must not be 0; the default is 4096",
        ),
        (
            "scheduler",
            "[logging]\nfilter = \"muster=loud\"",
            "s.toml:2:1: logging.filter: `muster=loud` is not a log filter",
        ),
        (
            "scheduler",
            "[logging]\nformat = \"xml\"",
            "logging.format: must be one of text, json, not the text \"xml\"; the default is \"text\"",
        ),
        ("scheduler", "listen = ", "s.toml:1:10: not TOML: "),
        (
            "scheduler",
            "listen = \"a\"\nlisten = \"b\"",
            "s.toml:2:1: not TOML: duplicate key",
        ),
        (
            "worker",
            "cgroups = \"maybe\"",
            "cgroups: must be one of off, auto, required, not the text \"maybe\"; the default is \"auto\"",
        ),
        (
            "worker",
            "schedulers = []",
            "s.toml:1:1: schedulers: must name at least one replica (host:port), or `etcd.endpoints` an \
             etcd; the default is [\"127.0.0.1:7400\"]",
        ),
        (
            "worker",
            "[health]\nsample_ms = 0",
            "s.toml:2:1: health.sample_ms: must be at least 1; the default is 30000",
        ),
        (
            "worker",
            "[health.expected]\ndriver = \"580\"",
            "s.toml:2:1: health.expected.driver: must be a complete release like `580.65.06`, not `580`; \
             leave it out to have it unset",
        ),
        (
            "worker",
            "[log_shipping]\ntimeout_ms = 5",
            "log_shipping: missing field `command`",
        ),
        (
            "worker",
            "[gpus.simulated]\ncount = 1\nmodel = \"H100\"\nmemory = 5",
            "gpus.simulated.memory: there is no field `memory`; did you mean `memory_mib`?",
        ),
        (
            "worker",
            "[[health.checks]]\nname = \"a\"\ncmd = [\"x\"]",
            "health.checks.0.cmd: unknown field `cmd`, expected one of `name`, `command`",
        ),
        (
            "worker",
            "gpus = \"some\"",
            "gpus: unknown variant `some`, expected one of `auto`, `nvml`, `simulated`, `none`; the \
             default is \"auto\"",
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.toml");
    let mut wrong = Vec::new();
    for (role, settings, expected) in cases {
        fs::write(&file, settings).unwrap();
        let output = check(&file, role);
        let printed_text = text(&output.stderr);
        let helps = printed_text.contains(&format!("muster config print-default {role}"));
        if output.status.code() != Some(64) || !printed_text.contains(expected) || !helps {
            wrong.push(format!(
                "{settings}\n  expected: {expected}\n  printed: {printed_text}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn all_errors_are_reported_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scheduler.toml");
    fs::write(
        &file,
        "lissen = \"a\"\nreplica_id = true\n[limits]\nwatch = 1\n",
    )
    .unwrap();
    let output = muster(&["config", "check", file.to_str().unwrap()])
        .output()
        .unwrap();
    let printed_text = text(&output.stderr);
    let lines = [
        "toml:1:1: lissen",
        "toml:2:1: replica_id",
        "toml:4:1: limits.watch",
    ];
    assert!(
        lines.iter().all(|line| printed_text.contains(line)),
        "{printed_text}"
    );
    let other = folder.path().join("replica.toml");
    fs::write(&other, "").unwrap();
    let output = muster(&["config", "check", other.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(
        text(&output.stderr).contains("--role scheduler"),
        "{output:?}"
    );
}

#[test]
fn the_printed_defaults_are_the_defaults() {
    for (role, changed) in [("scheduler", "cluster_id"), ("worker", "data_dir")] {
        let printed = muster(&["config", "print-default", role]).output().unwrap();
        let printed = text(&printed.stdout);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(format!("{role}.toml"));
        fs::write(&file, &printed).unwrap();
        let output = check(&file, role);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(
            text(&output.stdout).contains("changed from the defaults: none"),
            "{}",
            text(&output.stdout)
        );
        // The check can fail: another value is reported.
        let other = printed.replace(
            &format!("\n{changed} = \"muster"),
            &format!("\n{changed} = \"other"),
        );
        assert_ne!(other, printed, "{role}");
        fs::write(&file, other).unwrap();
        let output = check(&file, role);
        let printed_text = text(&output.stdout);
        assert!(
            printed_text.contains(&format!("changed from the defaults: {changed}\n")),
            "{printed_text}"
        );
    }
}

#[test]
fn every_option_is_documented() {
    let path = Path::new(ROOT).join("docs/configuration.md");
    let mut page = fs::read_to_string(&path).unwrap();
    for role in ["scheduler", "worker"] {
        let reference = muster(&["config", "reference", role]).output().unwrap();
        let reference = text(&reference.stdout);
        for row in reference.lines().skip(2) {
            let cells: Vec<&str> = row.split(" | ").collect();
            assert!(cells.len() >= 4 && cells[3].len() > 8, "no text: {row}");
            assert!(
                !row.contains("[`"),
                "a link that only rustdoc follows: {row}"
            );
        }
        let begin = format!("<!-- options: {role} -->\n\n");
        let from = page.find(&begin).unwrap() + begin.len();
        let to = from + page[from..].find("<!-- end -->").unwrap();
        page.replace_range(from..to, &format!("{reference}\n"));
    }
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap();
    assert!(
        written == page,
        "docs/configuration.md is outdated: UPDATE_GOLDENFILES=1 rewrites its tables"
    );
}

/// TOML blocks in the documents whose first line names their role.
fn documented_settings() -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(Path::new(ROOT).join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let page = fs::read_to_string(&path).unwrap();
        for block in page.split("```toml\n").skip(1) {
            let block = block.split("```").next().unwrap();
            for role in ["scheduler", "worker"] {
                if block.starts_with(&format!("# {role}.toml\n")) {
                    found.push((
                        path.display().to_string(),
                        role.to_owned(),
                        block.to_owned(),
                    ));
                }
            }
        }
    }
    found
}

#[test]
fn settings_in_the_documents_and_examples_are_in_order() {
    let blocks = documented_settings();
    assert!(blocks.len() >= 4, "{blocks:?}");
    let folder = tempfile::tempdir().unwrap();
    for (page, role, block) in blocks {
        let file = folder.path().join(format!("{role}.toml"));
        fs::write(&file, &block).unwrap();
        let output = check(&file, &role);
        assert!(
            output.status.success(),
            "{page}: {}\n{block}",
            text(&output.stderr)
        );
    }
    for role in ["scheduler", "worker"] {
        let output = check(
            &Path::new(ROOT).join(format!("deploy/settings/{role}.toml")),
            role,
        );
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}

#[test]
fn flags_override_variables_which_override_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scheduler.toml");
    fs::write(&file, "[raft]\nheartbeat_ms = 9001\n").unwrap();
    // The default of election_ms_min is 100: every larger heartbeat interval breaks a rule, and the error
    // names the effective one.
    let printed_text = |flag: Option<&str>, variable: Option<&str>, with_file: bool| {
        let mut args = vec!["scheduler"];
        if with_file {
            args.extend(["--config", file.to_str().unwrap()]);
        }
        if let Some(flag) = flag {
            args.extend(["--raft-heartbeat-ms", flag]);
        }
        let mut command = muster(&args);
        if let Some(variable) = variable {
            command.env("MUSTER_SCHEDULER_RAFT_HEARTBEAT_MS", variable);
        }
        // Without any settings the replica would fail to start only for its id: it is not among its peers.
        let output = command
            .args(["--replica-id", "1", "--data-dir", "/proc/nowhere"])
            .output()
            .unwrap();
        text(&output.stderr)
    };
    assert!(
        printed_text(Some("9003"), Some("9002"), true).contains("must exceed heartbeat_ms (9003)")
    );
    assert!(printed_text(None, Some("9002"), true).contains("must exceed heartbeat_ms (9002)"));
    assert!(printed_text(None, None, true).contains("must exceed heartbeat_ms (9001)"));
    let by_default = printed_text(None, None, false);
    assert!(
        !by_default.contains("must exceed") && by_default.contains("/proc/nowhere"),
        "{by_default}"
    );
    // Errors name the source of the value.
    let flag = printed_text(Some("soon"), None, true);
    assert!(
        flag.contains("--raft-heartbeat-ms: raft.heartbeat_ms: must be a whole number"),
        "{flag}"
    );
    let variable = printed_text(None, Some("soon"), true);
    assert!(
        variable.contains("MUSTER_SCHEDULER_RAFT_HEARTBEAT_MS: raft.heartbeat_ms: must be"),
        "{variable}"
    );
}

#[test]
fn lists_and_maps_are_read_from_flags_and_variables() {
    let run = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = muster(&["scheduler", "--data-dir", "/proc/nowhere"]);
        let output = command
            .args(args)
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        text(&output.stderr)
    };
    let reaches_the_disk =
        |printed_text: String| assert!(printed_text.contains("/proc/nowhere"), "{printed_text}");
    reaches_the_disk(run(
        &["--peer", "1=a:1", "--peer", "2=b:2", "--replica-id", "2"],
        &[],
    ));
    reaches_the_disk(run(
        &["--replica-id", "3"],
        &[("MUSTER_SCHEDULER_PEERS", "3=a:1,4=b:1")],
    ));
    reaches_the_disk(run(&["--metrics-listen", "", "--admins", "ada,root"], &[]));
    let printed_text = run(&["--peers", "1"], &[]);
    assert!(
        printed_text.contains("--peers: peers: must be a table of texts"),
        "{printed_text}"
    );
}

/// A service that is stopped with the test.
struct Running(Child, PathBuf);

impl Running {
    fn start(command: &mut Command, log: PathBuf) -> Self {
        let output = fs::File::create(&log).unwrap();
        Self(
            command
                .stdout(Stdio::null())
                .stderr(output)
                .spawn()
                .unwrap(),
            log,
        )
    }

    fn printed(&self) -> String {
        fs::read_to_string(&self.1).unwrap()
    }

    /// Waits until its log from a position on contains a text; returns the position after it.
    #[expect(
        clippy::disallowed_methods,
        reason = "polls another process with a deadline, in a test without a runtime"
    )]
    fn wait_for_log(&self, from: usize, expected: &str) -> usize {
        let begun = Instant::now();
        loop {
            let printed = self.printed();
            if printed[from..].contains(expected) {
                return printed.len();
            }
            assert!(
                begun.elapsed() < TIMEOUT,
                "`{expected}` is not in:\n{}",
                &printed[from..]
            );
            sleep(Duration::from_millis(20));
        }
    }

    fn hang_up(&self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself, which the test has reported then.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn sighup_reloads_safe_settings_and_names_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scheduler.toml");
    let write = |filter: &str, more: &str| {
        let data = folder.path().join("data");
        let settings = format!(
            "listen = \"127.0.0.1:0\"\nmetrics_listen = \"\"\ndata_dir = \
             {data:?}\n{more}\n[logging]\nfilter = \"{filter}\"\n"
        );
        fs::write(&file, settings).unwrap();
    };
    write("info", "");
    let mut command = muster(&["scheduler", "--config", file.to_str().unwrap()]);
    let service = Running::start(&mut command, folder.path().join("log"));
    let begun = service.wait_for_log(0, "leadership began");
    assert!(
        !service.printed().contains(" DEBUG "),
        "{}",
        service.printed()
    );

    write("debug", "cluster_id = \"other\"\nadmins = [\"ada\"]");
    service.hang_up();
    let reloaded = service.wait_for_log(
        begun,
        "settings reloaded changed=\"admins, logging.filter\"",
    );
    service.wait_for_log(
        begun,
        "after a restart of the service options=\"cluster_id\"",
    );
    // Its own log lines: the filter applies.
    service.wait_for_log(begun, " DEBUG ");

    write("info", "cluster_id = 7");
    service.hang_up();
    let refused = service.wait_for_log(reloaded, "settings not reloaded");
    service.wait_for_log(reloaded, "cluster_id: must be a text, not 7");
    // The whole file is ignored: the old filter still applies.
    service.wait_for_log(refused, " DEBUG ");

    write("warn", "cluster_id = \"other\"");
    service.hang_up();
    let quiet = service.wait_for_log(
        refused,
        "settings reloaded changed=\"admins, logging.filter\"",
    );
    service.hang_up();
    // The warning is still logged, and nothing else.
    service.wait_for_log(
        quiet,
        "after a restart of the service options=\"cluster_id\"",
    );
    let lines = service.printed()[quiet..]
        .lines()
        .skip(1)
        .map(str::to_owned)
        .collect::<Vec<_>>();
    assert!(
        lines.iter().all(|line| line.contains(" WARN ")),
        "{lines:?}"
    );
}
