//! Private shared memory of an attempt. Tests that need permission to mount print that if it is missing.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use muster_model::desired::TaskAssignment;
use muster_supervisor::exec::ExecRequest;
use muster_supervisor::isolation::shared_memory::{is_possible, remove_unless_used};
use muster_supervisor::{SharedMemoryLocation, TaskSpec};
use rustix::fs::{FlockOperation, flock};

use crate::exec::{ask, ended, receive_answer};
use crate::support::{LONG_LEASE_MS, Rig, eventually, script, skipped};

/// A folder in the host's `/dev/shm` that tasks must see, with the attempts' folders in it.
fn home() -> Option<tempfile::TempDir> {
    if !is_possible() {
        return skipped("this user may not mount");
    }
    let mut home = tempfile::Builder::new();
    Some(home.prefix("muster-test-").tempdir_in("/dev/shm").unwrap())
}

/// The same for tasks that create segments of System V.
fn home_with_segments() -> Option<tempfile::TempDir> {
    let mut ipcmk = Command::new("ipcmk");
    match ipcmk.arg("--version").stdout(Stdio::null()).status() {
        Ok(_) => home(),
        Err(error) => skipped(&format!("`ipcmk` (util-linux) cannot be run: {error}")),
    }
}

fn place(home: &Path, attempt: &str) -> SharedMemoryLocation {
    SharedMemoryLocation {
        folder: home.join(attempt),
        visible: Some(home.to_owned()),
    }
}

fn start(task: TaskAssignment, place: &SharedMemoryLocation) -> Rig {
    let place = place.clone();
    Rig::start_spec(task, LONG_LEASE_MS, |spec: &mut TaskSpec| {
        spec.confinement.shared_memory = Some(place);
    })
}

/// Number of System V segments visible to this test that a process created (`cpid`, the fifth column).
fn segments_of(maker: &str) -> usize {
    let text = fs::read_to_string("/proc/sysvipc/shm").unwrap();
    let makers = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().nth(4));
    makers.filter(|it| *it == maker).count()
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn files_in_shared_memory_are_removed_with_their_task() {
    let Some(home) = home_with_segments() else {
        return;
    };
    let place = place(home.path(), "7-0-1");
    fs::write(home.path().join("of-the-site"), "").unwrap();
    let text = format!(
        "dd if=/dev/zero of=/dev/shm/left bs=1M count=3 2> /dev/null; \
         ipcmk -M 4096 > /dev/null & wait $!; echo $! > maker; \
         awk -v maker=$! '$5 == maker' /proc/sysvipc/shm | wc -l; \
         ls /dev/shm; ls {}; wc -l < /proc/sysvipc/shm; stat -c %a /dev/shm; kill -9 $$",
        home.path().display()
    );
    let mut rig = start(script(&text), &place);
    assert_eq!(rig.receive_exit().signal, Some(9));
    let output = String::from_utf8(rig.output()).unwrap();
    let own = home.path().file_name().unwrap().to_str().unwrap();
    // It sees its own folder, the part that must stay visible, and only its own segment.
    let expected = format!("1\nleft\n{own}\n7-0-1\n7-0-1.members\nof-the-site\n2\n1777\n");
    assert_eq!(output, expected);
    // Nothing of it is left when its end is reported, and no other data is lost.
    assert_eq!(names(home.path()), ["of-the-site".to_owned()].into());
    assert!(!Path::new("/dev/shm/left").exists());
    let maker = rig.scratch_file("maker");
    assert_eq!(segments_of(maker.trim()), 0);
}

#[test]
fn members_of_an_attempt_share_it_until_the_last_one_ends() {
    let Some(home) = home_with_segments() else {
        return;
    };
    let place = place(home.path(), "7-0-1");
    let writes = "echo mine > /dev/shm/board; ipcmk -M 4096 > /dev/null; echo up > up; sleep 1000";
    let first = start(script(writes), &place);
    assert_eq!(first.scratch_file("up"), "up");
    let reads = "cat /dev/shm/board; wc -l < /proc/sysvipc/shm; echo up > up; sleep 1000";
    let mut second = start(script(reads), &place);
    assert_eq!(second.scratch_file("up"), "up");
    eventually("what it reads", || second.output() == b"mine\n2\n");
    // Another attempt sees none of it.
    let other = SharedMemoryLocation {
        folder: home.path().join("8-0-1"),
        ..place.clone()
    };
    let look = "[ -e /dev/shm/board ] || echo none; wc -l < /proc/sysvipc/shm";
    let mut stranger = start(script(look), &other);
    assert_eq!(stranger.receive_exit().code, Some(0));
    assert_eq!(stranger.output(), b"none\n1\n");
    drop(stranger);
    assert!(!other.folder.exists());

    // The first one dies with its supervisor: the second one keeps the folder, and a third one joins the
    // second.
    drop(first);
    remove_unless_used(&place.folder).unwrap();
    assert!(place.folder.join("board").exists());
    let mut third = start(
        script("cat /dev/shm/board; wc -l < /proc/sysvipc/shm"),
        &place,
    );
    assert_eq!(third.receive_exit().code, Some(0));
    assert_eq!(third.output(), b"mine\n2\n");
    second.send(&muster_supervisor::AgentRequest::Stop {
        reason: "cancel".to_owned(),
        grace_ms: 0,
    });
    assert_eq!(second.receive_exit().signal, Some(9));
    assert_eq!(names(home.path()), BTreeSet::new());
}

#[test]
fn a_task_with_its_own_shared_memory_still_reaches_its_supervisor() {
    let Some(home) = home() else { return };
    let place = place(home.path(), "7-0-1");
    // The usual location of tasks' directories: below the path that the task's own folder covers.
    fs::create_dir(home.path().join("tasks")).unwrap();
    let script = script(&format!(
        "test -d {}/tasks && touch {}/tasks/there",
        home.path().display(),
        home.path().display()
    ));
    let mut rig = start(script, &place);
    assert_eq!(rig.receive_exit().code, Some(0));
    assert!(home.path().join("tasks/there").exists());
}

#[test]
fn shared_memory_of_a_dead_supervisor_is_removed() {
    let Some(home) = home() else { return };
    let place = place(home.path(), "7-0-1");
    let rig = start(
        script("echo x > /dev/shm/left; echo up > up; sleep 1000"),
        &place,
    );
    assert_eq!(rig.scratch_file("up"), "up");
    // Also called while it lives: then the folder is kept.
    remove_unless_used(&place.folder).unwrap();
    assert!(place.folder.join("left").exists());
    drop(rig);
    remove_unless_used(&place.folder).unwrap();
    remove_unless_used(&place.folder).unwrap();
    assert_eq!(names(home.path()), BTreeSet::new());
}

#[test]
fn a_folder_that_others_begin_to_use_while_its_removal_waits_is_kept() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("7-0-1");
    fs::create_dir(&folder).unwrap();
    let turn = File::create(home.path().join("7-0-1.members")).unwrap();
    flock(&turn, FlockOperation::LockExclusive).unwrap();
    thread::scope(|scope| {
        let removal = scope.spawn(|| remove_unless_used(&folder));
        // Gives the thread time to begin. If it begins later, the test still passes, but proves less.
        thread::park_timeout(Duration::from_millis(50));
        // The last task ends, and another one begins.
        fs::rename(&folder, home.path().join("old")).unwrap();
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("marker"), "").unwrap();
        let in_use = File::open(&folder).unwrap();
        flock(&in_use, FlockOperation::LockShared).unwrap();
        drop(turn);
        removal.join().unwrap().unwrap();
        assert!(folder.join("marker").exists());
    });
}

#[test]
fn a_command_beside_a_task_has_the_tasks_shared_memory() {
    let Some(home) = home_with_segments() else {
        return;
    };
    let place = place(home.path(), "7-0-1");
    let writes = "echo mine > /dev/shm/board; ipcmk -M 4096 > /dev/null; echo up > up; sleep 1000";
    let mut rig = start(script(writes), &place);
    assert_eq!(rig.scratch_file("up"), "up");
    let text = "cat /dev/shm/board; wc -l < /proc/sysvipc/shm";
    let request = ExecRequest {
        command: ["sh", "-c", text].map(str::to_owned).to_vec(),
        terminal: None,
    };
    let (input, _nothing) = io::pipe().unwrap();
    let (mut output, its_output) = io::pipe().unwrap();
    let files = [input.as_fd(), its_output.as_fd(), its_output.as_fd()];
    let socket = ask(&mut rig, &request, files);
    drop(its_output);
    let mut printed = String::new();
    output.read_to_string(&mut printed).unwrap();
    assert_eq!(printed, "mine\n2\n");
    assert!(receive_answer(&socket).is_some());
    assert_eq!(receive_answer(&socket), ended(Some(0), None));
}
