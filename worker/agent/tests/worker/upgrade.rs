//! Test of an upgrade: an agent of another build adopts running tasks, and supervisors of both builds run
//! side by side.

use std::io::Write;
use std::path::Path;

use muster_model::desired::StopInstruction;
use muster_model::ids::{AttemptEpoch, JobId};

use crate::agent::{Host, exited, running};
use crate::support::leader::Leader;
use crate::support::{FIXTURE, script};

/// Installs the program as packages do: the old file is removed, and a new one gets its name. Bytes
/// appended to it distinguish the builds.
fn install(program: &Path, build: &str) {
    let fresh = program.with_extension("new");
    std::fs::copy(FIXTURE, &fresh).unwrap();
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .open(&fresh)
        .unwrap();
    file.write_all(build.as_bytes()).unwrap();
    drop(file);
    std::fs::rename(&fresh, program).unwrap();
}

/// The program that a process runs, as the kernel names it.
fn program_of(pid: i32) -> String {
    let link = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    link.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgraded_agent_adopts_the_tasks_of_the_build_before() {
    let leader = Leader::start(3).await;
    let mut program = None;
    let mut host = Host::start_with(&[&leader], |config, home| {
        let installed = home.join("muster");
        install(&installed, "first build");
        config.supervisor = Some(installed.clone());
        program = Some(installed);
    });
    let program = program.unwrap();
    let text = "echo $$ >> pids; trap 'exit 75' TERM; while :; do sleep 0.02; done";
    let mut old = script(text);
    leader.want([old.clone()]);
    leader.eventually_task("running", running).await;
    let pid = host.scratch_file(&old, "pids");
    host.kill_agent();
    install(&program, "second build");
    leader.inner().status = None;
    host.restart_agent();
    leader.eventually_task("adopted", running).await;

    let mut new = script(text);
    new.key.job = JobId(8);
    new.epoch = AttemptEpoch(12);
    leader.want([old.clone(), new.clone()]);
    host.scratch_file(&new, "pids");
    let supervisor = |task| host.directory(task).supervisor().unwrap().unwrap().pid;
    assert!(program_of(supervisor(&old)).ends_with("(deleted)"));
    assert_eq!(program_of(supervisor(&new)), program.display().to_string());

    old.stop = Some(StopInstruction {
        reason: "preempt".to_owned(),
        grace_ms: 10_000,
    });
    leader.want([old.clone(), new]);
    let exit = leader
        .eventually("the old one's end", |inner| {
            let tasks = &inner.status.as_ref()?.tasks;
            tasks
                .iter()
                .find(|task| task.key == old.key)
                .and_then(exited)
        })
        .await;
    assert_eq!(exit.code, Some(75));
    assert_eq!(host.scratch_file(&old, "pids"), pid, "it was restarted");
}
