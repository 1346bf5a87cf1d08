//! Confinement of tasks by cgroups, the kernel's limits and CPU binding; and provision of secrets.
//! Where a host has no usable controller, a test that needs it returns early.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use muster_model::command::SignalSender;
use muster_model::desired::TaskAssignment;
use muster_model::spec::{Secret, SecretForm, Ulimit, UlimitKind};
use muster_supervisor::{AssignedCpus, CgroupHost, Controller, DeviceNumber};

use crate::support::{FILES_MAX, LONG_LEASE_MS, Rig, eventually, is_gone, script, skipped};
use crate::tasks::{RUNAWAY, stop};

/// A directory on every host that is a file system in memory.
const MEMORY: &str = "/dev/shm";

/// The cgroups of one test, with these controllers; if the host lacks one, prints that and returns `None`.
pub(crate) fn cgroups(test: &str, wanted: &[Controller]) -> Option<Vec<PathBuf>> {
    let host = CgroupHost::find(&format!("test-{}", std::process::id()));
    let has_all = |host: &CgroupHost| wanted.iter().all(|controller| host.has(*controller));
    match host.filter(has_all) {
        Some(host) => Some(host.paths(test, wanted)),
        None => skipped(&format!("no cgroups with {wanted:?} for us here")),
    }
}

fn start(task: TaskAssignment, cgroups: &[PathBuf]) -> Rig {
    Rig::start_spec(task, LONG_LEASE_MS, |spec| {
        spec.confinement.cgroups = cgroups.to_vec();
    })
}

fn gone(paths: &[PathBuf]) -> bool {
    !paths.iter().any(|path| path.exists())
}

/// Content of the first existing file.
fn file_content(paths: &[PathBuf], names: &[&str]) -> String {
    let files = paths
        .iter()
        .flat_map(|path| names.iter().map(|name| path.join(name)));
    let mut texts = files.filter_map(|file| std::fs::read_to_string(file).ok());
    texts.next().unwrap_or_default().trim().to_owned()
}

#[test]
fn a_task_is_in_its_cgroups_and_they_leave_nothing() {
    let paths = cgroups("plain", &[]).unwrap_or_default();
    let text = "while [ ! -s runaway ]; do sleep 0.01; done; cat /proc/self/cgroup";
    let mut rig = start(script(&format!("{RUNAWAY} {text}")), &paths);
    let runaway = rig.scratch_file("runaway");
    assert_eq!(rig.receive_exit().code, Some(0));
    assert!(is_gone(&runaway));
    // Hosts without usable cgroups still run tasks.
    if let Some(path) = paths.first() {
        let output = String::from_utf8(rig.output()).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(output.contains(name), "{output}");
    }
    assert!(gone(&paths));
}

#[test]
fn a_memory_limit_ends_the_task_and_is_reported_with_its_peak() {
    let Some(paths) = cgroups("memory", &[Controller::Memory]) else {
        return;
    };
    let mut task = script("head -c 200000000 /dev/zero | tail -c 150000000 | wc -c; sleep 1000");
    task.memory_mib = 32;
    let mut rig = start(task, &paths);
    rig.receive_started();
    eventually("the end of the memory", || {
        file_content(&paths, &["memory.events", "memory.oom_control"])
            .lines()
            .any(|line| line.starts_with("oom_kill ") && line != "oom_kill 0")
    });
    rig.send(&stop(0));
    let exit = rig.receive_exit();
    let memory = exit.memory.unwrap();
    assert!(exit.out_of_memory, "{exit:?}");
    assert_eq!(memory.limit_bytes, 32 << 20);
    assert!(
        memory.peak_bytes > 24 << 20 && memory.peak_bytes <= 32 << 20,
        "{memory:?}"
    );
    // Its child was killed for lack of memory; the shell itself by the supervisor.
    assert_eq!(exit.sender, Some(SignalSender::Supervisor));
    assert!(gone(&paths));
}

#[test]
fn a_task_killed_by_the_kernel_is_reported_as_such() {
    let Some(paths) = cgroups("oom", &[Controller::Memory]) else {
        return;
    };
    let mut task = script("exec dd if=/dev/zero of=/dev/null bs=150000000 count=1");
    task.memory_mib = 16;
    let exit = start(task, &paths).receive_exit();
    assert!(exit.out_of_memory, "{exit:?}");
    assert_eq!(
        (exit.signal, exit.sender),
        (Some(9), Some(SignalSender::Kernel))
    );
}

#[test]
fn a_signal_of_another_sender_is_distinguished_from_ours() {
    let exit = start(script("kill -9 $$"), &[]).receive_exit();
    assert_eq!(
        (exit.signal, exit.sender),
        (Some(9), Some(SignalSender::Other))
    );
}

#[test]
fn a_process_limit_refuses_further_processes_and_is_reported() {
    let Some(paths) = cgroups("pids", &[Controller::Pids]) else {
        return;
    };
    let mut task = script("for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; wait");
    task.execution.pids_max = Some(4);
    let exit = start(task, &paths).receive_exit();
    assert!(exit.evidence.contains("pids_max"), "{exit:?}");
    assert!(gone(&paths));
}

#[test]
fn a_limit_of_processes_that_cannot_be_set_fails_the_start() {
    let mut task = script("sleep 1000");
    task.execution.pids_max = Some(4);
    let error = start(task, &[]).receive_exit().start_error.unwrap();
    assert!(
        error.contains("no usable cgroup controller `pids`"),
        "{error}"
    );
}

#[test]
fn cpus_are_a_weight_and_only_if_wanted_a_limit() {
    let Some(paths) = cgroups("cpu", &[Controller::Cpu]) else {
        return;
    };
    let mut task = script("while [ ! -e done ]; do sleep 0.01; done");
    task.cpus_milli = 1_500;
    for (quota, limits) in [
        (true, ["150000", "150000 100000"]),
        (false, ["-1", "max 100000"]),
    ] {
        let mut rig = Rig::start_spec(task.clone(), LONG_LEASE_MS, |spec| {
            spec.confinement.cgroups.clone_from(&paths);
            spec.confinement.cpu_quota = quota;
        });
        rig.receive_started();
        let weight = file_content(&paths, &["cpu.weight", "cpu.shares"]);
        assert!(["59", "1536"].contains(&weight.as_str()), "{weight}");
        let limit = file_content(&paths, &["cpu.max", "cpu.cfs_quota_us"]);
        assert!(limits.contains(&limit.as_str()), "{quota}: {limit}");
        std::fs::write(rig.directory.scratch().join("done"), "").unwrap();
        assert_eq!(rig.receive_exit().code, Some(0));
    }
}

#[test]
fn a_device_that_is_anothers_cannot_be_opened() {
    let Some(paths) = cgroups("devices", &[Controller::Devices]) else {
        return;
    };
    keeps_from_a_device(&paths);
    // Version 2 has no file for it, even where a hybrid host mounts it without controllers.
    let unified = Path::new("/sys/fs/cgroup/unified");
    if let Some(name) = paths[0].file_name().filter(|_| unified.exists()) {
        keeps_from_a_device(&[unified.join("muster").join(name)]);
    }
}

fn keeps_from_a_device(paths: &[PathBuf]) {
    let text = "cat /dev/zero | head -c 1 > /dev/null && head -c 1 /dev/urandom > /dev/null \
                && ! head -c 1 /dev/full && ! echo > /dev/full";
    let mut rig = Rig::start_spec(script(text), LONG_LEASE_MS, |spec| {
        spec.confinement.cgroups = paths.to_vec();
        // `/dev/full` plays a GPU.
        let others =
            [(195, 0), (1, 7), (195, 1)].map(|(major, minor)| DeviceNumber { major, minor });
        spec.confinement.devices_denied = others.to_vec();
    });
    assert_eq!(rig.receive_exit().code, Some(0));
    let output = String::from_utf8(rig.output()).unwrap();
    assert!(!output.contains("No space left"), "{output}");
}

#[test]
fn a_bound_task_runs_on_its_cpus_alone() {
    let paths = cgroups("cpuset", &[Controller::Cpuset]).unwrap_or_default();
    let ours = rustix::thread::sched_getaffinity(None).unwrap();
    let index = (0..rustix::thread::CpuSet::MAX_CPU)
        .rfind(|cpu| ours.is_set(*cpu))
        .unwrap();
    let last = u32::try_from(index).unwrap();
    for paths in [Vec::new(), paths] {
        let text = "grep Cpus_allowed_list /proc/self/status; head -n 1 /proc/self/numa_maps 2> /dev/null || true";
        let mut rig = Rig::start_spec(script(text), LONG_LEASE_MS, |spec| {
            spec.confinement.cgroups.clone_from(&paths);
            spec.confinement.cpus = Some(AssignedCpus {
                cpus: vec![last],
                nodes: vec![0],
            });
        });
        assert_eq!(rig.receive_exit().code, Some(0));
        let output = String::from_utf8(rig.output()).unwrap();
        let mut lines = output.lines();
        let cpus = format!("Cpus_allowed_list:\t{last}");
        assert_eq!(lines.next(), Some(&*cpus));
        // A kernel without memory nodes does not list them.
        if let Some(memory) = lines.next() {
            assert!(memory.contains("prefer"), "{memory}");
        }
    }
}

#[test]
fn a_promised_limit_that_cannot_be_set_fails_the_start() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("cgroup");
    // Looks like a cgroup whose limit is not writable.
    std::fs::create_dir_all(path.join("memory.max")).unwrap();
    let mut rig = start(script("sleep 1000"), &[path]);
    let error = rig.receive_exit().start_error.unwrap();
    assert!(
        error.contains("setting the memory limit of 64 MiB"),
        "{error}"
    );
    assert!(!rig.lives());
}

#[test]
fn a_cgroup_that_cannot_be_made_fails_the_start_and_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (made, refused) = (home.path().join("made"), home.path().join("file/below"));
    std::fs::write(home.path().join("file"), "").unwrap();
    let mut rig = start(script("sleep 1000"), &[made.clone(), refused]);
    let error = rig.receive_exit().start_error.unwrap();
    assert!(
        error.contains("creating the cgroup") && error.contains("file/below"),
        "{error}"
    );
    assert!(!rig.lives() && !made.exists());
}

#[test]
fn version_1_without_kill_files_kills_forked_processes_too() {
    let freezer = Path::new("/sys/fs/cgroup/freezer");
    if !freezer.join("cgroup.procs").exists() {
        return;
    }
    // Like hosts that do not mount version 2 at all.
    let path = freezer.join(format!("muster/test-{}.forks", std::process::id()));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let text = "n() { sleep 0.01; n & }; for i in 1 2 3 4 5 6 7 8; do n & done; echo ready > ready; sleep 1000";
    let mut rig = start(script(text), std::slice::from_ref(&path));
    rig.scratch_file("ready");
    rig.send(&stop(0));
    rig.receive_exit();
    assert!(!rig.lives() && !path.exists());
}

#[test]
fn the_kernels_limits_are_the_jobs() {
    let mut task = script("ulimit -Sn; ulimit -Hn; ulimit -c");
    let limit = |soft, hard| Ulimit {
        soft: Some(soft),
        hard: Some(hard),
    };
    task.execution.ulimits = BTreeMap::from([
        (UlimitKind::Nofile, limit(100, 200)),
        (UlimitKind::Core, limit(0, 0)),
    ]);
    let mut rig = start(task, &[]);
    assert_eq!(rig.receive_exit().code, Some(0));
    assert_eq!(rig.output(), b"100\n200\n0\n");
}

#[test]
fn a_limit_that_the_host_does_not_allow_is_named() {
    let mut task = script("sleep 1000");
    let endless = Ulimit {
        soft: None,
        hard: None,
    };
    task.execution.ulimits = BTreeMap::from([(UlimitKind::Nofile, endless)]);
    let error = start(task, &[]).receive_exit().start_error.unwrap();
    assert!(
        error.contains("`nofile` of unlimited is over what this host allows"),
        "{error}"
    );
}

/// Starts a task with two secrets of a host; returns the folder of the one that is a file.
fn start_with_secrets(text: &str, target: &Path) -> (Rig, tempfile::TempDir) {
    let source = tempfile::tempdir().unwrap();
    std::fs::write(source.path().join("token"), "s3cret-token\n").unwrap();
    std::fs::write(source.path().join("key"), "s3cret-key\n").unwrap();
    let mut task = script(text);
    let secret = |name: &str, form| Secret {
        name: name.to_owned(),
        form,
    };
    task.execution.secrets = vec![
        secret("token", SecretForm::Variable("TOKEN".to_owned())),
        secret("key", SecretForm::File("KEY_FILE".to_owned())),
    ];
    let (from, to) = (source.path().to_owned(), target.to_owned());
    let rig = Rig::start_prepared(task, LONG_LEASE_MS, FILES_MAX, move |spec, _| {
        spec.secrets.source = Some(from);
        spec.secrets.target = Some(to);
    });
    (rig, source)
}

#[test]
fn secrets_are_in_memory_for_the_task_alone_and_go_with_it() {
    let target = PathBuf::from(MEMORY).join(format!("muster-test-{}", std::process::id()));
    let text = "[ ${#TOKEN} = 12 ] && [ $(wc -c < $KEY_FILE) = 11 ] && echo $KEY_FILE > file; \
                while [ ! -e done ]; do sleep 0.01; done";
    let (mut rig, _source) = start_with_secrets(text, &target);
    assert_eq!(
        rig.scratch_file("file"),
        target.join("key").display().to_string()
    );
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&target), mode(&target.join("key"))), (0o700, 0o400));
    let supervisor = rig.directory.supervisor().unwrap().unwrap();
    let arguments = std::fs::read_to_string(format!("/proc/{}/cmdline", supervisor.pid)).unwrap();
    let spec = std::fs::read_to_string(rig.directory.path().join("spec.json")).unwrap();
    assert!(!arguments.contains("s3cret") && !spec.contains("s3cret"));
    std::fs::write(rig.directory.scratch().join("done"), "").unwrap();
    assert_eq!(rig.receive_exit().code, Some(0));
    assert!(!target.exists());
}

#[test]
fn an_unavailable_secret_fails_the_start_and_its_value_appears_nowhere() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (mut rig, source) = start_with_secrets("sleep 1000", &disk.path().join("secrets"));
    let error = rig.receive_exit().start_error.unwrap();
    assert!(
        error.contains("`key`") && error.contains("run_dir"),
        "{error}"
    );
    assert!(!error.contains("s3cret"));
    assert!(!disk.path().join("secrets").exists() && !rig.lives());
    drop(source);
    let mut task = script("sleep 1000");
    task.execution.secrets = vec![Secret {
        name: "token".to_owned(),
        form: SecretForm::Variable("TOKEN".to_owned()),
    }];
    let exit = start(task, &[]).receive_exit();
    assert!(exit.is_missing_file(), "{exit:?}");
    let error = exit.start_error.unwrap();
    assert!(error.contains("no folder of secrets"), "{error}");
}
