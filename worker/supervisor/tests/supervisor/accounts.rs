//! Tasks that run as another account than their supervisor, which is root here.

use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use muster_model::spec::{Secret, SecretForm};
use muster_supervisor::exec::{ExecAnswer, ExecRequest};
use muster_supervisor::{Account, TaskDirectory, TaskSpec};

use crate::exec::{ask, receive_answer};
use crate::support::{FILES_MAX, LONG_LEASE_MS, Rig, eventually, is_gone, script, skipped};

/// A directory on every host that is a file system in memory.
const MEMORY: &str = "/dev/shm";
/// The unprivileged account of every Unix.
const NOBODY: &str = "nobody";

/// Prepares what an agent prepares for the task of an account: access to its folders, and a scratch folder of
/// its own.
fn as_nobody(spec: &mut TaskSpec, directory: &TaskDirectory) {
    let nobody = Account::find(NOBODY).unwrap().unwrap();
    let home = spec.log_directory.parent().unwrap();
    fs::set_permissions(home, Permissions::from_mode(0o711)).unwrap();
    fs::create_dir_all(directory.scratch()).unwrap();
    nobody.own(&directory.scratch()).unwrap();
    spec.identity.account = Some(nobody);
}

/// A task that runs as `nobody`; `None` where the test cannot run.
fn task_as_nobody(text: &str, change: impl FnOnce(&mut TaskSpec)) -> Option<Rig> {
    if !rustix::process::geteuid().is_root() {
        return skipped("only root runs tasks as others");
    }
    let rig = Rig::start_prepared(script(text), LONG_LEASE_MS, FILES_MAX, |spec, directory| {
        as_nobody(spec, directory);
        change(spec);
    });
    Some(rig)
}

#[test]
fn a_task_of_an_account_dies_with_its_supervisor() {
    let Some(mut rig) = task_as_nobody("echo $$ > pid; sleep 1000", |_| {}) else {
        return;
    };
    let pid = rig.scratch_file("pid");
    let nobody = Account::find(NOBODY).unwrap().unwrap();
    let process = fs::metadata(format!("/proc/{pid}")).unwrap();
    assert_eq!(process.uid(), nobody.uid);
    rig.supervisor.kill().unwrap();
    eventually("the task's end", || is_gone(&pid));
}

#[test]
fn secrets_are_readable_by_the_tasks_account_only() {
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("key"), "s3cret\n").unwrap();
    let target = format!("{MEMORY}/muster-test-accounts-{}", std::process::id());
    let text = "cat $KEY_FILE; stat -c '%a %U' $KEY_FILE $(dirname $KEY_FILE)";
    let rig = task_as_nobody(text, |spec| {
        give_key(spec, source.path(), target.as_ref());
        // A second variable for the secret refers to the same file.
        let again = SecretForm::File("SAME_FILE".to_owned());
        let secrets = &mut spec.assignment.execution.secrets;
        secrets.extend_from_within(..);
        secrets[1].form = again;
    });
    let Some(mut rig) = rig else {
        return;
    };
    let exit = rig.receive_exit();
    let output = String::from_utf8(rig.output()).unwrap();
    assert_eq!(
        output,
        format!("s3cret\n400 {NOBODY}\n700 {NOBODY}\n"),
        "{exit:?}"
    );
    assert!(fs::metadata(target).is_err(), "they go with the task");
}

/// Gives a task the secret `key` of a folder as a file in another one.
fn give_key(spec: &mut TaskSpec, source: &Path, target: &Path) {
    spec.assignment.execution.secrets = vec![Secret {
        name: "key".to_owned(),
        form: SecretForm::File("KEY_FILE".to_owned()),
    }];
    spec.secrets.source = Some(source.to_owned());
    spec.secrets.target = Some(target.to_owned());
}

#[test]
fn secrets_do_not_overwrite_existing_files() {
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("key"), "s3cret\n").unwrap();
    let memory = tempfile::tempdir_in(MEMORY).unwrap();
    let (theirs, target) = (memory.path().join("theirs"), memory.path().join("target"));
    fs::create_dir(&theirs).unwrap();
    symlink(&theirs, &target).unwrap();
    let Some(mut rig) = task_as_nobody("true", |spec| give_key(spec, source.path(), &target))
    else {
        return;
    };
    let error = rig.receive_exit().start_error.unwrap();
    assert!(error.contains("target: File exists"), "{error}");
    assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0);
    assert_eq!(fs::metadata(&theirs).unwrap().uid(), 0);
    assert!(fs::symlink_metadata(&target).unwrap().is_symlink());
}

#[test]
fn a_command_beside_a_task_starts_in_a_folder_that_its_account_may_enter() {
    let place = tempfile::tempdir().unwrap();
    let close = |mode| fs::set_permissions(place.path(), Permissions::from_mode(mode)).unwrap();
    close(0o755);
    let text = "echo > $MUSTER_CTL_DIR/../scratch/ready; sleep 1000";
    let Some(mut rig) = task_as_nobody(text, |spec| {
        spec.assignment.working_directory = Some(place.path().display().to_string());
    }) else {
        return;
    };
    rig.scratch_file("ready");
    let request = ExecRequest {
        command: ["sh", "-c", "pwd"].map(str::to_owned).to_vec(),
        terminal: None,
    };
    let mut answer = || {
        let (reader, writer) = io::pipe().unwrap();
        let socket = ask(
            &mut rig,
            &request,
            [reader.as_fd(), writer.as_fd(), writer.as_fd()],
        );
        drop(writer);
        let mut text = String::new();
        let first = receive_answer(&socket).unwrap();
        File::from(OwnedFd::from(reader))
            .read_to_string(&mut text)
            .unwrap();
        (first, text)
    };
    let there = format!("{}\n", place.path().display());
    assert_eq!(answer(), (ExecAnswer::Started, there));
    // Accessible only to root from now on: the supervisor could still enter it.
    close(0o700);
    let (ExecAnswer::Refused { detail }, _) = answer() else {
        panic!("not refused");
    };
    let names = detail.contains(&place.path().display().to_string());
    assert!(names && detail.contains("is not open"), "{detail}");
}

#[test]
fn a_program_that_the_account_may_not_run_is_refused_before_the_start() {
    let Some(mut rig) = task_as_nobody("true", |spec| {
        let home = spec.log_directory.parent().unwrap();
        let program = home.join("tool");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o700)).unwrap();
        spec.assignment.command = vec![program.display().to_string()];
    }) else {
        return;
    };
    let error = rig.receive_exit().start_error.unwrap();
    assert!(error.contains("tool` failed: Permission denied"), "{error}");
}

#[test]
fn a_refused_task_starts_nothing() {
    let mut rig = Rig::start_spec(script("echo > ran"), LONG_LEASE_MS, |spec| {
        spec.identity.refusal = Some("NO_ACCOUNT: no account ada".to_owned());
    });
    let error = rig.receive_exit().start_error;
    assert_eq!(error.as_deref(), Some("NO_ACCOUNT: no account ada"));
    assert!(!rig.directory.scratch().join("ran").exists());
}
