//! Prepared tasks that wait for the release of their gang.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;

use muster_model::desired::{GangHost, Rendezvous, TaskAssignment};
use muster_model::spec::{Ulimit, UlimitKind};
use muster_supervisor::process::ProcessEntry;
use muster_supervisor::{AgentRequest, SupervisorMessage};

use crate::support::{LONG_LEASE_MS, Rig, eventually, script};

/// A gang member that creates a file as soon as it begins, and prints the gang's rendezvous.
fn member(rank: u32) -> TaskAssignment {
    let mut task = script("echo $MASTER_PORT > begun; cat $MUSTER_HOSTFILE; sleep 1000");
    task.barrier = true;
    task.rank.rank = rank;
    task.rank.world_size = 2;
    task.rank.master_port = 26_000;
    task
}

fn receive_prepared(rig: &mut Rig) -> Option<u16> {
    match rig.receive() {
        SupervisorMessage::Prepared { master_port } => master_port,
        other => panic!("not prepared: {other:?}"),
    }
}

fn has_begun(rig: &Rig) -> bool {
    rig.directory.scratch().join("begun").exists()
}

#[test]
fn a_member_begins_when_its_gang_is_released_and_not_before() {
    let mut rig = Rig::start(member(1), LONG_LEASE_MS);
    assert_eq!(receive_prepared(&mut rig), None, "rank 0 chooses the port");
    // Whatever else is sent, nothing of it runs.
    rig.send(&AgentRequest::Status);
    assert!(matches!(
        rig.receive(),
        SupervisorMessage::Status {
            stopping: false,
            ..
        }
    ));
    assert!(!has_begun(&rig) && rig.directory.process().unwrap().is_none());
    let master_port = 27_001;
    rig.send(&AgentRequest::Begin { master_port });
    assert_eq!(rig.scratch_file("begun"), "27001");
    rig.receive_started();
    // Sent again, as by a restarted agent: the task runs once.
    rig.send(&AgentRequest::Begin { master_port });
    rig.send(&AgentRequest::Status);
    assert!(matches!(rig.receive(), SupervisorMessage::Status { .. }));
}

#[test]
fn rank_0_keeps_a_port_free_until_it_begins() {
    // The port that would be chosen first is in use.
    let _taken = TcpListener::bind(("0.0.0.0", 26_000));
    let mut rig = Rig::start(member(0), LONG_LEASE_MS);
    let port = receive_prepared(&mut rig).unwrap();
    assert_ne!(port, 26_000);
    rig.send(&AgentRequest::Begin { master_port: port });
    assert_eq!(rig.scratch_file("begun"), port.to_string());
    TcpListener::bind(("0.0.0.0", port)).unwrap();
}

#[test]
fn rank_0_receives_the_gangs_hosts() {
    let mut task = member(0);
    let host = |address: &str, slots| GangHost {
        address: address.to_owned(),
        slots,
    };
    task.gang_hosts = vec![host("10.0.0.7", 8), host("10.0.0.8", 4)];
    let mut rig = Rig::start(task, LONG_LEASE_MS);
    let port = receive_prepared(&mut rig).unwrap();
    rig.send(&AgentRequest::Begin { master_port: port });
    let expected = b"10.0.0.7 slots=8\n10.0.0.8 slots=4\n";
    eventually("the host file is printed", || rig.output() == expected);
}

#[test]
fn a_member_that_is_stopped_before_its_gang_is_whole_ends_without_having_begun() {
    let mut rig = Rig::start(member(1), LONG_LEASE_MS);
    receive_prepared(&mut rig);
    rig.send(&AgentRequest::Stop {
        reason: "preempt".to_owned(),
        grace_ms: 60_000,
    });
    let exit = rig.receive_exit();
    let error = exit.start_error.clone().unwrap_or_default();
    assert!(error.contains("before its gang was released"), "{exit:?}");
    assert!(!exit.lease_expired && !has_begun(&rig));
}

#[test]
fn a_member_that_is_released_and_stopped_at_once_ends_without_having_begun() {
    for grace_ms in [0, 60_000] {
        let mut rig = Rig::start(member(1), LONG_LEASE_MS);
        receive_prepared(&mut rig);
        let begin = AgentRequest::Begin {
            master_port: 27_003,
        };
        let stop = AgentRequest::Stop {
            reason: "preempt".to_owned(),
            grace_ms,
        };
        rig.send_all(&[begin, stop]);
        let exit = rig.receive_exit();
        let error = exit.start_error.clone().unwrap_or_default();
        assert!(error.contains("before its gang was released"), "{exit:?}");
        assert!(!exit.lease_expired && !has_begun(&rig));
    }
}

#[test]
fn a_member_that_is_released_and_suspended_at_once_is_paused() {
    let mut task = member(1);
    task.command = vec!["sleep".to_owned(), "1000".to_owned()];
    let mut rig = Rig::start(task, LONG_LEASE_MS);
    receive_prepared(&mut rig);
    let begin = AgentRequest::Begin {
        master_port: 27_004,
    };
    rig.send_all(&[begin, AgentRequest::Suspend, AgentRequest::Status]);
    assert!(matches!(
        rig.receive(),
        SupervisorMessage::Status {
            suspended: true,
            ..
        }
    ));
    let process = rig.receive_started();
    eventually("it is paused", || {
        let all = ProcessEntry::all().unwrap();
        all.iter()
            .any(|entry| entry.pid == process.pid && entry.is_stopped())
    });
}

#[test]
fn a_command_that_is_announced_before_a_member_begins_finds_its_socket() {
    let mut rig = Rig::start(member(1), LONG_LEASE_MS);
    receive_prepared(&mut rig);
    rig.send(&AgentRequest::OpenExec);
    rig.send(&AgentRequest::Begin {
        master_port: 27_005,
    });
    rig.receive_started();
    let socket = rig.directory.exec_socket();
    eventually("its socket", || socket.exists());
}

#[test]
fn a_member_whose_lease_runs_out_before_its_gang_is_whole_does_not_begin() {
    let mut rig = Rig::start(member(1), 700);
    receive_prepared(&mut rig);
    let exit = rig.receive_exit();
    assert!(exit.lease_expired && exit.start_error.is_some(), "{exit:?}");
    assert!(!has_begun(&rig));
}

#[test]
fn a_new_agent_receives_that_a_member_is_prepared() {
    let mut rig = Rig::start(member(1), LONG_LEASE_MS);
    receive_prepared(&mut rig);
    rig.reconnect();
    receive_prepared(&mut rig);
    rig.send(&AgentRequest::Begin {
        master_port: 27_002,
    });
    assert_eq!(rig.scratch_file("begun"), "27002");
}

#[test]
fn a_failed_preparation_is_reported_before_the_gang_waits() {
    let limit = Ulimit {
        soft: None,
        hard: None,
    };
    type Change<'a> = &'a dyn Fn(&mut TaskAssignment);
    let cases: [(&str, Change<'_>); 5] = [
        ("/nowhere/at/all", &|task| {
            task.working_directory = Some("/nowhere/at/all".to_owned());
        }),
        ("starting `/no/program` failed: No such file", &|task| {
            task.command = vec!["/no/program".to_owned()];
        }),
        ("starting `sh` failed: No such file", &|task| {
            task.environment = [("PATH".to_owned(), "/nowhere".to_owned())].into();
        }),
        ("starting `/etc` failed: Permission denied", &|task| {
            task.command = vec!["/etc".to_owned()];
        }),
        ("its hard limit `nofile`", &|task| {
            task.execution.ulimits = [(UlimitKind::Nofile, limit)].into();
        }),
    ];
    for (message, change) in cases {
        let mut task = member(1);
        change(&mut task);
        let mut rig = Rig::start(task, LONG_LEASE_MS);
        let SupervisorMessage::Exited(exit) = rig.receive() else {
            panic!("it was prepared: {message}");
        };
        let error = exit.start_error.unwrap();
        assert!(error.contains(message), "{error}");
    }
}

/// A task's connection that subscribes to its gang's rendezvous, after the answer.
fn watch_gang(rig: &Rig) -> BufReader<UnixStream> {
    let mut stream = UnixStream::connect(rig.directory.control_socket()).unwrap();
    stream
        .write_all(b"{\"op\":\"watch\",\"gang\":true}\n")
        .unwrap();
    let mut reader = BufReader::new(stream);
    assert_eq!(line(&mut reader), r#"{"ok":true}"#);
    reader
}

fn line(reader: &mut BufReader<UnixStream>) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn meeting(address: &str, port: u16, hosts: &[&str]) -> AgentRequest {
    let host = |address: &&str| GangHost {
        address: (*address).to_owned(),
        slots: 8,
    };
    AgentRequest::Renew(Rendezvous {
        master_address: address.to_owned(),
        master_port: port,
        hosts: hosts.iter().map(host).collect(),
    })
}

#[test]
fn survivors_of_a_swap_are_notified_of_their_gangs_hosts() {
    let mut task = member(0);
    let host = |address: &str| GangHost {
        address: address.to_owned(),
        slots: 8,
    };
    task.rank.master_address = "node1".to_owned();
    task.gang_hosts = vec![host("node1"), host("node2")];
    let mut rig = Rig::start(task, LONG_LEASE_MS);
    let port = receive_prepared(&mut rig).unwrap();
    rig.send(&AgentRequest::Begin { master_port: port });
    rig.receive_started();
    let hostfile = rig.directory.hostfile();
    let hosts = || std::fs::read_to_string(&hostfile).unwrap();
    assert_eq!(hosts(), "node1 slots=8\nnode2 slots=8\n");
    let opened = std::fs::File::open(&hostfile).unwrap();
    let mut early = watch_gang(&rig);

    // An unchanged rendezvous is not announced.
    rig.send(&meeting("node1", port, &["node1", "node2"]));
    rig.send(&meeting("node1", port, &["node1", "node3"]));
    let moved = format!(r#"{{"gang":{{"master_addr":"node1","master_port":{port}}}}}"#);
    assert_eq!(line(&mut early), moved);
    // A notified reader finds the new file; a reader that had it open reads one version, never a mixture.
    assert_eq!(hosts(), "node1 slots=8\nnode3 slots=8\n");
    assert_eq!(
        std::io::read_to_string(opened).unwrap(),
        "node1 slots=8\nnode2 slots=8\n"
    );

    // A later subscriber is notified at once.
    let mut late = watch_gang(&rig);
    assert_eq!(line(&mut late), moved);
    rig.send(&meeting("node4", 30_000, &["node4", "node3"]));
    let moved = r#"{"gang":{"master_addr":"node4","master_port":30000}}"#;
    assert_eq!([line(&mut early), line(&mut late)], [moved, moved]);
}

#[test]
fn a_survivor_whose_host_file_cannot_be_replaced_is_notified_of_the_swap_later() {
    let mut task = member(0);
    task.barrier = false;
    task.rank.master_address = "node1".to_owned();
    task.gang_hosts = vec![GangHost {
        address: "node1".to_owned(),
        slots: 8,
    }];
    let mut rig = Rig::start(task, LONG_LEASE_MS);
    rig.receive_started();
    let hostfile = rig.directory.hostfile();
    let hosts = || std::fs::read_to_string(&hostfile).unwrap();
    let mut watcher = watch_gang(&rig);
    // A folder blocks the path of the temporary file.
    let mut obstacle = hostfile.clone().into_os_string();
    obstacle.push(".new");
    std::fs::create_dir(&obstacle).unwrap();
    rig.send(&meeting("node1", 26_000, &["node2"]));
    // The write has been tried before the second answer arrives, and no connection was notified.
    for _ in 0..2 {
        rig.send(&AgentRequest::Status);
        assert!(matches!(
            rig.receive(),
            SupervisorMessage::Status {
                stopping: false,
                ..
            }
        ));
    }
    watcher.get_ref().set_nonblocking(true).unwrap();
    let silence = watcher.fill_buf().unwrap_err();
    assert_eq!(silence.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(hosts(), "node1 slots=8\n");

    watcher.get_ref().set_nonblocking(false).unwrap();
    std::fs::remove_dir(&obstacle).unwrap();
    let moved = r#"{"gang":{"master_addr":"node1","master_port":26000}}"#;
    assert_eq!(line(&mut watcher), moved);
    assert_eq!(hosts(), "node2 slots=8\n");
}

#[test]
fn the_hosts_of_a_large_gang_are_taken() {
    let mut task = member(0);
    task.barrier = false;
    task.gang_hosts = vec![GangHost {
        address: "node0".to_owned(),
        slots: 8,
    }];
    let mut rig = Rig::start(task, LONG_LEASE_MS);
    rig.receive_started();
    let names: Vec<String> = (0..16_384)
        .map(|number| format!("node{number:05}.of-a-large-cluster"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    rig.send(&meeting("node0", 26_000, &names));
    let hostfile = rig.directory.hostfile();
    eventually("all hosts", || {
        std::fs::read_to_string(&hostfile).is_ok_and(|text| text.lines().count() == names.len())
    });
    // It still listens to its agent.
    rig.send(&AgentRequest::Status);
    assert!(matches!(rig.receive(), SupervisorMessage::Status { .. }));
}
