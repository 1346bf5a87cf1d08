//! Tests of resource limits for tasks, and of cleanup after dead ones.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use muster_model::command::{GpuHealth, SignalSender};
use muster_model::desired::TaskAssignment;
use muster_model::ids::GpuUuid;
use muster_model::spec::{CpuBinding, Secret, SecretForm};
use muster_worker::process::ProcessIdentity;
use muster_worker::supervisor::Controller;
use muster_worker::supervisor::isolation::shared_memory::is_possible;
use muster_worker::supervisor::testing::HangingFolder;
use muster_worker::{CgroupUse, GpuConfig, SharedMemoryUse, WorkerConfig};

use crate::agent::{Host, exited, gone, running};
use crate::support::leader::{Inner, Leader};
use crate::support::{eventually, is_gone, script};

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_limited_by_default_and_the_end_reports_its_peak() {
    let leader = Leader::start(3).await;
    let host = Host::start(&[&leader]);
    let mut task = script("exec dd if=/dev/zero of=/dev/null bs=150000000 count=1");
    task.memory_mib = 16;
    eventually("the worker's identity", || {
        host.home.path().join("w/identity.json").exists()
    });
    let limits = host.cgroups().is_some_and(|it| it.has(Controller::Memory));
    leader.want([task]);
    let exit = leader.eventually_task("the end", exited).await;
    // A host that cannot limit anything runs it nevertheless.
    if limits {
        assert!(exit.out_of_memory, "{exit:?}");
        assert_eq!(exit.memory.unwrap().limit_bytes, 16 << 20);
        assert_eq!(exit.sender, Some(SignalSender::Kernel));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_cgroups_nothing_is_made() {
    let leader = Leader::start(3).await;
    let host = Host::start_with(&[&leader], |config, _| config.cgroups = CgroupUse::Off);
    let task = script("cat /proc/self/cgroup; echo done > done; sleep 1000");
    leader.want([task.clone()]);
    host.scratch_file(&task, "done");
    assert!(
        host.cgroups()
            .is_none_or(|cgroups| cgroups.tasks().is_empty())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_keeps_its_secrets_and_its_binding_under_the_next_agent() {
    let leader = Leader::start(3).await;
    let run = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut host = Host::start_with(&[&leader], |config, home| {
        let secrets = home.join("secrets");
        std::fs::create_dir(&secrets).unwrap();
        std::fs::write(secrets.join("token"), "s3cret\n").unwrap();
        config.secrets_dir = Some(secrets);
        config.run_dir = Some(run.path().to_owned());
    });
    let text = "[ $(wc -c < $TOKEN_FILE) = 7 ] && echo $TOKEN_FILE > file; \
                grep Cpus_allowed_list /proc/self/status > cpus; while [ ! -e done ]; do sleep 0.02; done";
    let mut task = script(text);
    task.cpus_milli = 1_000;
    task.execution.binding = CpuBinding::Cpus;
    task.execution.secrets = vec![Secret {
        name: "token".to_owned(),
        form: SecretForm::File("TOKEN_FILE".to_owned()),
    }];
    leader.want([task.clone()]);
    let file = host.scratch_file(&task, "file");
    let cpus = host.scratch_file(&task, "cpus");
    let cpu = cpus.rsplit('\t').next().unwrap();
    assert!(cpu.parse::<u32>().is_ok(), "{cpus}");
    host.kill_agent();
    leader.inner().status = None;
    host.restart_agent();
    leader.eventually_task("adopted", running).await;
    std::fs::write(host.directory(&task).scratch().join("done"), "").unwrap();
    let exit = leader.eventually_task("the end", exited).await;
    assert_eq!(exit.code, Some(0));
    assert!(!Path::new(&file).exists());
    let journal = std::fs::read(host.home.path().join("w/journal")).unwrap();
    assert!(!String::from_utf8_lossy(&journal).contains("s3cret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_reboot_no_process_is_mistaken_for_a_task_by_its_pid() {
    let leader = Leader::start(3).await;
    let mut host = Host::start(&[&leader]);
    let task = script("exec sleep 1000");
    leader.want([task.clone()]);
    leader.eventually_task("running", running).await;
    host.kill_agent();
    let directory = host.directory(&task);
    let supervisor = directory.supervisor().unwrap().unwrap();
    let process = directory.process().unwrap().unwrap();
    supervisor.kill();
    eventually("the task's death", || !process.is_alive());
    // After the reboot another process has the supervisor's process id and the same start time in ticks.
    let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
    let identity = ProcessIdentity::of(other.id().cast_signed()).unwrap();
    let claim = directory.path().join("claim.json");
    std::fs::write(claim, serde_json::to_vec(&identity).unwrap()).unwrap();
    let path = host.home.path().join("w/identity.json");
    let mut identity: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    identity["boot_id"] = "another boot".into();
    std::fs::write(&path, identity.to_string()).unwrap();
    leader.inner().status = None;
    host.restart_agent();
    let detail = leader.eventually_task("gone", gone).await;
    assert!(detail.contains("rebooted"), "{detail}");
    assert!(other.try_wait().unwrap().is_none());
    other.kill().unwrap();
    other.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn remains_of_a_task_without_a_directory_are_removed() {
    let leader = Leader::start(3).await;
    let mut host = Host::start(&[&leader]);
    let text = "setsid sh -c 'echo $$ > runaway; exec sleep 1000' >/dev/null 2>&1 & sleep 1000";
    let task = script(text);
    leader.want([task.clone()]);
    leader.eventually_task("running", running).await;
    let runaway = host.scratch_file(&task, "runaway");
    host.kill_agent();
    // The task's directory is removed behind the agent's back.
    let directory = host.directory(&task);
    let supervisor = directory.supervisor().unwrap().unwrap();
    std::fs::remove_dir_all(directory.path()).unwrap();
    supervisor.kill();
    leader.want([]);
    leader.inner().status = None;
    host.restart_agent();
    leader
        .eventually("the session", |inner| inner.status.as_ref().map(|_| ()))
        .await;
    assert!(is_gone(&runaway));
    assert!(
        host.cgroups()
            .is_none_or(|cgroups| cgroups.tasks().is_empty())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn where_cgroups_are_required_a_host_without_them_offers_nothing() {
    let leader = Leader::start(3).await;
    let mut host = Host::start_with(&[&leader], |config, _| config.cgroups = CgroupUse::Required);
    let can_limit = |controller| host.cgroups().is_some_and(|it| it.has(controller));
    eventually("the worker's identity", || {
        host.home.path().join("w/identity.json").exists()
    });
    if [Controller::Cpu, Controller::Memory, Controller::Pids]
        .into_iter()
        .all(can_limit)
    {
        leader
            .eventually("the session", |inner| inner.status.as_ref().map(|_| ()))
            .await;
    }
    host.kill_agent();
    // As on a host where the cgroup hierarchies are not visible.
    let config = host.home.path().join("config.json");
    let refused = Command::new("unshare")
        .args([
            "--mount",
            "sh",
            "-c",
            "umount -a -t cgroup,cgroup2 && exec \"$0\" agent \"$1\"",
        ])
        .arg(crate::support::FIXTURE)
        .arg(&config)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let error = String::from_utf8(refused.stderr).unwrap();
    // Cannot be tested without the right to unshare.
    if !error.starts_with("unshare:") {
        assert!(!refused.status.success());
        assert!(error.contains("cgroups are required"), "{error}");
    }
}

/// The host's first GPU in the order of its timeline, once it has reported.
async fn first_gpu(leader: &Leader) -> GpuUuid {
    let reported = leader.eventually("the GPUs", |inner| {
        inner.status.as_ref()?;
        let registration = inner.hellos.last()?.registration.as_ref()?;
        registration.gpus.first()?.uuid.parse().ok()
    });
    reported.await
}

/// Settings of a host whose first GPU has memory in use until `free_at_ms` after its start.
fn held_until(config: &mut WorkerConfig, home: &Path, free_at_ms: u64) {
    let path = home.join("timeline");
    std::fs::write(&path, format!("0,0,memory,2048\n{free_at_ms},0,memory,0\n")).unwrap();
    if let GpuConfig::Simulated { timeline, .. } = &mut config.gpus {
        *timeline = Some(path);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_with_memory_in_use_is_unfit_until_it_is_free() {
    let leader = Leader::start(3).await;
    let host = Host::start_with(&[&leader], |config, home| {
        held_until(config, home, 6_000);
        config.gpu_memory_wait_ms = 200;
    });
    let gpu = first_gpu(&leader).await;
    let mut task = script("echo started > started");
    task.gpus = vec![gpu];
    // The timeline runs on its own thread: events that are not processed yet delay nothing.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    leader.want([task.clone()]);
    let detail = leader.eventually_task("gone", gone).await;
    assert!(
        detail.contains("2048 MiB") && detail.contains("not free"),
        "{detail}"
    );
    assert!(!host.directory(&task).path().exists());
    eventually_unfit(&leader, gpu, "memory-held").await;
    eventually_healthy(&leader, gpu).await;
}

fn health(inner: &Inner, gpu: GpuUuid) -> Option<GpuHealth> {
    let gpus = &inner.status.as_ref()?.gpus;
    let found = gpus.iter().find(|(uuid, _)| *uuid == gpu);
    found.map(|(_, health)| health.clone())
}

async fn eventually_unfit(leader: &Leader, gpu: GpuUuid, by: &str) {
    let unfit = |inner: &Inner| {
        matches!(health(inner, gpu)?, GpuHealth::Faulted { signal, .. } if signal == by)
            .then_some(())
    };
    leader.eventually("the fault", unfit).await;
}

async fn eventually_healthy(leader: &Leader, gpu: GpuUuid) {
    let healthy = |inner: &Inner| (health(inner, gpu)? == GpuHealth::Healthy).then_some(());
    leader.eventually("health", healthy).await;
}

/// A task that hangs in the kernel, on a GPU; none without the right to mount.
async fn hanging_task(
    leader: &Leader,
    host: &Host,
    text: &str,
) -> Option<(HangingFolder, TaskAssignment)> {
    let path = host.home.path().join("hanging");
    let folder = match HangingFolder::mount(&path) {
        Ok(folder) => folder,
        Err(error) => {
            let why = format!("skipped: no file system can be mounted that hangs: {error}");
            drop(writeln!(std::io::stderr(), "{why}"));
            return None;
        }
    };
    let mut task = script(&text.replace("HANGING", path.join("file").to_str().unwrap()));
    task.gpus = vec![first_gpu(leader).await];
    leader.want([task.clone()]);
    eventually("a hanging process", || folder.hangs());
    Some((folder, task))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_cannot_be_killed_ends_for_the_leader_and_keeps_its_gpu() {
    let leader = Leader::start(3).await;
    let mut host = Host::start(&[&leader]);
    let text = "echo $$ > pid; exec cat HANGING";
    let Some((folder, task)) = hanging_task(&leader, &host, text).await else {
        return;
    };
    let gpu = task.gpus[0];
    let main = host.scratch_file(&task, "pid");
    // Not desired any more: it is killed at once, without success.
    leader.want([]);
    eventually_unfit(&leader, gpu, "task-stuck").await;
    leader
        .eventually("its end", |inner| {
            inner.status.as_ref()?.tasks.is_empty().then_some(())
        })
        .await;
    assert!(!is_gone(&main));
    // A later agent detects it too, and reports no task.
    host.kill_agent();
    leader.inner().status = None;
    host.restart_agent();
    eventually_unfit(&leader, gpu, "task-stuck").await;
    assert!(!is_gone(&main));
    drop(folder);
    eventually_healthy(&leader, gpu).await;
    assert!(is_gone(&main));
    let directory = host.directory(&task);
    eventually("nothing is left of it", || !directory.path().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_succeeded_and_left_a_hanging_process_counts_as_succeeded() {
    let leader = Leader::start(3).await;
    let host = Host::start(&[&leader]);
    let text = "cat HANGING & while [ ! -e go ]; do sleep 0.02; done";
    let Some((folder, task)) = hanging_task(&leader, &host, text).await else {
        return;
    };
    std::fs::write(host.directory(&task).scratch().join("go"), "").unwrap();
    eventually_unfit(&leader, task.gpus[0], "task-stuck").await;
    let exit = leader.eventually_task("the end", exited).await;
    assert_eq!(exit.code, Some(0));
    drop(folder);
    eventually_healthy(&leader, task.gpus[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_waits_for_its_gpus_memory_and_starts_when_it_is_free() {
    let leader = Leader::start(3).await;
    let began = tokio::time::Instant::now();
    let host = Host::start_with(&[&leader], |config, home| held_until(config, home, 1_500));
    let gpu = first_gpu(&leader).await;
    let mut task = script("exit 4");
    task.gpus = vec![gpu];
    leader.want([task]);
    let exit = leader.eventually_task("the end", exited).await;
    assert_eq!(exit.code, Some(4));
    assert!(began.elapsed().as_millis() >= 1_500, "it did not wait");
    drop(host);
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_memory_of_a_dead_task_is_removed_before_its_gpu_is_reused() {
    if !is_possible() {
        drop(writeln!(
            std::io::stderr(),
            "skipped: this user may not mount"
        ));
        return;
    }
    let leader = Leader::start(3).await;
    let run = tempfile::tempdir_in("/dev/shm").unwrap();
    let host = Host::start_with(&[&leader], |config, _| {
        config.run_dir = Some(run.path().to_owned());
    });
    let mut task = script("echo x > /dev/shm/left; echo up > up; sleep 1000");
    task.gpus = vec![first_gpu(&leader).await];
    leader.want([task.clone()]);
    assert_eq!(host.scratch_file(&task, "up"), "up");
    let shared = std::fs::read_dir(run.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("shared-")
        });
    let left = shared.unwrap().join(format!(
        "{}-{}-{}/left",
        task.key.job, task.unit, task.attempt
    ));
    assert!(left.exists(), "{}", left.display());
    assert!(!Path::new("/dev/shm/left").exists());
    // A killed supervisor removes nothing.
    host.directory(&task).supervisor().unwrap().unwrap().kill();
    leader.eventually_task("gone", gone).await;
    assert!(!left.parent().unwrap().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_use_the_hosts_shared_memory_if_so_configured() {
    let leader = Leader::start(3).await;
    let host = Host::start_with(&[&leader], |config, _| {
        config.shared_memory = SharedMemoryUse::Host;
    });
    let mut task = script("readlink /proc/self/ns/mnt /proc/self/ns/ipc > worlds; sleep 1000");
    task.gpus = vec![first_gpu(&leader).await];
    leader.want([task.clone()]);
    let worlds = host.scratch_file(&task, "worlds");
    let own = ["mnt", "ipc"].map(|name| {
        let path = std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        path.display().to_string()
    });
    assert_eq!(worlds, own.join("\n"));
}
