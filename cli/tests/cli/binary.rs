//! Tests of the built binary without a cluster: exit codes, and errors with advice.
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// A port without a listener: the kernel has just assigned it, and it was released.
fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// The binary, without the user's environment.
fn muster(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
    command
        .args(args)
        .env_clear()
        .env("USER", "ada")
        .stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    muster(args).output().unwrap()
}

/// The same with an output that its reader has closed.
fn run_unread(args: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    muster(args).stdout(writer).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn help_and_version_succeed_on_stdout() {
    for args in [
        &["--version"][..],
        &["--help"],
        &["job", "submit", "--help"],
    ] {
        let output = run(args);
        assert_eq!(code(&output), 0, "{args:?}");
        assert!(!output.stdout.is_empty(), "{args:?}");
        assert!(output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn a_misplaced_argument_is_answered_with_the_right_command_line() {
    let cases: [(&[&str], &str); 4] = [
        (&["submit", "--", "x"], "tip: there is muster job submit"),
        (&["job", "submit", "w.yaml"], "muster job submit -f w.yaml"),
        (&["job", "submit", "python"], "muster job submit -- python"),
        (&["job", "exec", "166", "hostname"], "JOB -- hostname ..."),
    ];
    for (args, expected) in cases {
        let text = stderr(&run(args));
        assert!(text.contains(expected), "{args:?}\n{text}");
        assert!(!text.contains("simulate"), "{text}");
    }
}

#[test]
fn a_missing_settings_file_is_reported_as_missing() {
    let output = run(&["config", "check", "/nowhere/s.toml"]);
    assert_eq!(code(&output), 64);
    let text = stderr(&output);
    assert!(
        text.contains("cannot read /nowhere/s.toml: No such file"),
        "{text}"
    );
}

#[test]
fn the_help_names_every_exit_code() {
    let output = run(&["--help"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    let line = text.split("Exit codes: ").nth(1).unwrap();
    for code in ["0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "64 ", "124 "] {
        assert!(line.contains(code), "{code}: {line}");
    }
}

#[test]
fn usage_errors_exit_with_64() {
    let cases: [&[&str]; 10] = [
        &[],
        &["nonsense"],
        &["dev", "--workers", "1", "--gpus", "129"],
        &["job", "submit", "--gpus", "many", "--", "x"],
        &["job", "submit", "--memory", "16G", "--", "x"],
        &["job", "submit"],
        &["job", "submit", "--tasks", "0", "--", "x"],
        &["host", "block", "node01"],
        &["host", "block", "node[3-1]", "--reason", "x"],
        &["gpu", "block", "nothing", "--reason", "x"],
    ];
    for args in cases {
        let output = run(args);
        assert_eq!(code(&output), 64, "{args:?}\n{}", stderr(&output));
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_gpu_check_without_a_driver_reports_that_it_cannot_run() {
    if std::path::Path::new("/dev/nvidiactl").exists() {
        // The machine's GPUs must not be checked by a test.
        return;
    }
    let output = run(&["gpu", "check"]);
    assert_eq!(code(&output), 3);
    let output_text = stdout(&output);
    assert!(
        output_text.starts_with("GPU-CHECK UNKNOWN - libcuda is not on this host"),
        "{output_text}"
    );
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_block_without_a_reason_is_refused() {
    let text = stderr(&run(&["block-host", "node01"]));
    assert!(text.contains("--reason <TEXT>"), "{text}");
}

#[test]
fn a_broken_rule_names_its_flag() {
    let output = run(&["job", "submit", "--gpus", "129", "--tasks", "0", "--", "x"]);
    let expected = "error: --tasks: must be at least 1\n\
                    error: --gpus: 129 is over the limit of 128 (GPUS_PER_TASK_MAX)\n";
    assert_eq!(stderr(&output), expected);
}

#[test]
fn an_unreachable_cluster_is_reported_with_its_address_and_the_option_to_change_it() {
    let address = nowhere();
    let cases: [&[&str]; 8] = [
        &["job", "submit", "--", "true"],
        &["job", "list"],
        &["job", "events", "-f"],
        &["job", "logs", "1", "-f"],
        &["job", "wait", "1"],
        &["host", "list"],
        &["cluster", "status"],
        &["unblock-gpu", "GPU-01234567-89ab-cdef-0011-223344556677"],
    ];
    for args in cases {
        let output = muster(args).env("MUSTER_ADDR", &address).output().unwrap();
        let text = stderr(&output);
        assert_eq!(code(&output), 1, "{args:?}\n{text}");
        assert!(text.contains(&address), "{args:?}\n{text}");
        assert!(text.contains("onnection refused"), "{args:?}\n{text}");
        assert!(text.contains("--address host:port"), "{args:?}\n{text}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_search_for_the_replicas_is_called_so() {
    let text = stderr(&run(&["job", "logs", "1", "-f", "--address", &nowhere()]));
    assert!(text.contains("cannot find the replicas"), "{text}");
}

#[test]
fn all_addresses_of_a_list_are_tried() {
    let (one, two) = (nowhere(), nowhere());
    let output = run(&["cluster", "status", "--address", &format!("{one},{two}")]);
    let text = stderr(&output);
    assert!(text.contains(&one) && text.contains(&two), "{text}");
}

#[test]
fn an_address_that_is_none_is_refused() {
    let output = run(&["cluster", "status", "--address", "not an address"]);
    assert_eq!(code(&output), 64);
    let text = stderr(&output);
    let expected = "error: the client's setting `addresses` is not usable: `not an address` is not host:port\n";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn contexts_name_clusters() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("muster")).unwrap();
    let (lab, office) = (nowhere(), nowhere());
    let text = format!(
        "current: lab\ncontexts:\n  lab: {{addresses: [\"{lab}\"]}}\n  office: {{addresses: [\"{office}\"]}}\n"
    );
    std::fs::write(folder.path().join("muster/contexts.yaml"), text).unwrap();
    let status = |args: &[&str]| {
        let mut command = muster(&["cluster", "status"]);
        command.args(args).env("XDG_CONFIG_HOME", folder.path());
        stderr(&command.output().unwrap())
    };
    assert!(status(&[]).contains(&lab));
    assert!(status(&["--context", "office"]).contains(&office));
    let text = status(&["--context", "home"]);
    assert!(text.contains("no context `home`"), "{text}");
    assert!(text.contains("it has lab, office"), "{text}");
}

#[test]
fn a_bad_job_file_is_rejected_with_line_and_column_before_any_request() {
    let mut child = muster(&["job", "submit", "-f", "-", "--address", &nowhere()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text = b"name: a\ncommand: [x]\n---\nname: b\ncommand: [y]\nresources:\n  gpus: 129\n";
    child.stdin.take().unwrap().write_all(text).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 64);
    let expected =
        "error: <stdin>:7:9: resources.gpus: 129 is over the limit of 128 (GPUS_PER_TASK_MAX)\n";
    assert!(stderr(&output).starts_with(expected), "{}", stderr(&output));
}

#[test]
fn a_file_and_flags_do_not_mix() {
    let output = run(&["job", "submit", "-f", "job.yaml", "--gpus", "1"]);
    assert_eq!(code(&output), 64);
    assert!(stderr(&output).contains("--gpus cannot be used with --file"));
}

#[test]
fn a_job_file_that_is_absent_is_named() {
    let output = run(&["job", "submit", "-f", "/nowhere/job.yaml"]);
    assert_eq!(code(&output), 64);
    let text = stderr(&output);
    assert!(
        text.contains("cannot read /nowhere/job.yaml: No such file"),
        "{text}"
    );
}

#[test]
fn settings_of_a_replica_that_cannot_work_are_named() {
    let output = run(&["scheduler", "--replica-id", "7"]);
    assert_eq!(code(&output), 64);
    assert!(stderr(&output).contains("peers"), "{}", stderr(&output));
}

#[test]
fn completion_scripts_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completion", shell]);
        assert_eq!(code(&output), 0);
        assert!(stdout(&output).contains("block-host"), "{shell}");
    }
}

#[test]
fn errors_have_no_colour_without_a_terminal() {
    let output = run(&["job", "submit", "--tasks", "0", "--", "x"]);
    assert!(!stderr(&output).contains('\u{1b}'));
}

#[test]
fn a_simulation_prints_a_table_and_writes_its_report() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = folder.path().join("jobs.csv");
    let lines = "job_id,submit_s,duration_s,num_tasks,gpus_per_task\na,0,10,1,8\nb,0,5.0,2,8\nhuge,1,5,3,8\n";
    std::fs::write(&jobs, lines).unwrap();
    let report = folder.path().join("report");
    let output = run(&[
        "simulate",
        "--cluster",
        "2x8:V100",
        "--jobs",
        jobs.to_str().unwrap(),
        "--policy",
        "fifo,queues",
        "--audit",
        "--report",
        report.to_str().unwrap(),
    ]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let text = stdout(&output);
    assert!(
        text.contains("1 jobs could never be held by the cluster: huge (3 x 8 GPUs)"),
        "{text}"
    );
    assert!(
        std::fs::read_to_string(report.join("report.html"))
            .unwrap()
            .contains("<svg")
    );
    assert!(
        stderr(&output).contains("report.json"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn bad_simulation_input_is_rejected_with_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = folder.path().join("jobs.csv");
    let names = "job_id,submit_s,duration_s,num_tasks,gpus_per_task";
    let cases = [
        (
            format!("{names}\na,0,soon,1,8\n"),
            "line 2: duration_s: `soon`",
        ),
        (
            format!("{names},colour\n"),
            "line 1: unknown column `colour`",
        ),
        (
            format!("{names}\na,5,1,1,8\nb,4,1,1,8\n"),
            "line 3: submit_s: `4` is before",
        ),
        (format!("{names}\n"), "has no job"),
        (
            format!("{names}\na,0,1,1\n"),
            "line 2: has 4 fields, and line 1 names 5 columns",
        ),
    ];
    for (text, expected) in cases {
        std::fs::write(&jobs, text).unwrap();
        let output = run(&[
            "simulate",
            "--cluster",
            "2x8",
            "--jobs",
            jobs.to_str().unwrap(),
        ]);
        assert_eq!(code(&output), 64);
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
    let output = run(&[
        "simulate",
        "--cluster",
        "many",
        "--jobs",
        jobs.to_str().unwrap(),
    ]);
    assert_eq!(code(&output), 64);
    assert!(
        stderr(&output).contains(
            "file `many` does not exist, and as a short form `many` is not of the form HOSTSxGPUS"
        ),
        "{}",
        stderr(&output)
    );
}

#[test]
fn options_of_a_what_if_and_of_a_trace_do_not_mix() {
    let trace = ["simulate", "--cluster", "2x8", "--jobs", "jobs.csv"];
    let output = run(&[&trace[..], &["--drain", "n1"]].concat());
    assert_eq!(code(&output), 64);
    let text = stderr(&output);
    assert!(
        text.contains("--drain is about a running cluster: it needs --from-cluster"),
        "{text}"
    );
    let output = run(&["simulate", "--from-cluster", "--drain", "n1", "--strict"]);
    assert_eq!(code(&output), 64);
    assert!(
        stderr(&output).contains("cannot be used with"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_bundle_without_any_answer_is_written_and_fails() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bundle.tar.gz");
    let path = file.to_str().unwrap();
    let output = run(&["debug", "bundle", "--out", path, "--address", &nowhere()]);
    assert_eq!(code(&output), 1, "{output:?}");
    assert!(file.metadata().unwrap().len() > 0);
    assert!(stdout(&output).contains("1 files"), "{output:?}");
    let errors = stderr(&output);
    assert!(
        errors.contains("status.json is missing") && errors.contains("is the cluster running?"),
        "{errors}"
    );
    // An invalid command line leaves nothing behind.
    let other = folder.path().join("other.tar.gz");
    let path = other.to_str().unwrap();
    let output = run(&["debug", "bundle", "--out", path, "--etcd", "nonsense"]);
    assert_eq!(code(&output), 64, "{output:?}");
    assert!(!other.exists());
}

/// Reads a document in YAML.
fn yaml(text: &str) -> serde_json::Value {
    serde_saphyr::from_str(text).unwrap()
}

#[test]
fn output_in_yaml_is_valid_yaml() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script.txt");
    std::fs::write(&script, "hosts 1 gpus=8\nsubmit a gpus=5\n").unwrap();
    let args = ["scenario", "run", script.to_str().unwrap(), "-o", "yaml"];
    let text = stdout(&run(&args));
    let lines: Vec<u64> = { text.split("---\n").skip(1) }
        .map(|document| yaml(document)["line"].as_u64().unwrap())
        .collect();
    assert_eq!(lines, [1, 2], "{text}");
    let mut command = muster(&["task", "env", "-o", "yaml"]);
    command.envs([("MUSTER_CTL_SOCK", "/s"), ("MUSTER_TASK_INDEX", "it's: 7")]);
    let ours = yaml(&stdout(&command.output().unwrap()));
    assert_eq!(ours["MUSTER_TASK_INDEX"], "it's: 7");
}

#[test]
fn a_reader_that_went_away_does_not_change_how_a_command_ends() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script.txt");
    let text = "hosts 1 gpus=8\nsubmit a gpus=5\nexpect waiting a because Resources\n";
    std::fs::write(&script, text).unwrap();
    let file = folder.path().join("bundle.tar.gz");
    let (script, file) = (script.to_str().unwrap(), file.to_str().unwrap());
    for args in [
        &["scenario", "run", script][..],
        &["debug", "bundle", "--out", file, "--address", &nowhere()],
    ] {
        let output = run_unread(args);
        assert_eq!(code(&output), 1, "{args:?}\n{}", stderr(&output));
    }
    // A command that only prints succeeds when its output is closed.
    assert_eq!(code(&run_unread(&["config", "print-default", "worker"])), 0);
}

#[test]
fn errors_about_etcd_name_its_option_in_every_command_that_calls_a_replica() {
    for args in [
        &["job", "list"][..],
        &["worker", "token", "create"],
        &["worker", "token", "list"],
        &["worker", "token", "revoke", "x"],
    ] {
        let output = run(&[args, &["--etcd", "nonsense"]].concat());
        let errors = stderr(&output);
        assert_eq!(code(&output), 64, "{args:?}: {errors}");
        assert!(
            errors.contains("`nonsense`") && errors.contains("give --etcd or MUSTER_ETCD"),
            "{args:?}: {errors}"
        );
    }
    let output = run(&["job", "list", "--address", "nonsense"]);
    let errors = stderr(&output);
    assert!(!errors.contains("MUSTER_ETCD"), "{errors}");
    let help = stdout(&run(&["worker", "token", "create", "--help"]));
    assert!(help.contains("--etcd <ENDPOINTS>"), "{help}");
}

#[test]
fn errors_about_the_replica_to_lead_name_its_option() {
    let output = run(&["cluster", "transfer-leader", "2"]);
    let errors = stderr(&output);
    assert_eq!(code(&output), 64, "{errors}");
    let tip = "`--to` names the replica: muster cluster transfer-leader --to 2";
    assert!(errors.contains(tip), "{errors}");
}

#[test]
fn the_help_of_each_certificate_describes_its_name() {
    for (kind, name) in [
        ("replica", "<NAME>\n          Base name of its files"),
        ("worker", "The worker's host name"),
        ("client", "The user's name"),
    ] {
        let help = stdout(&run(&["cert", kind, "--help"]));
        let normalized = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            normalized(&help).contains(&normalized(name)),
            "{kind}: {help}"
        );
        assert!(kind == "client" || !help.contains("user's name"), "{help}");
        assert!(!help.contains("<FILE>"), "{help}");
    }
}
