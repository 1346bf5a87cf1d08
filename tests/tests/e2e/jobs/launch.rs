//! Launch templates in `examples/launch`, used as a user would: copied, submitted, read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use muster_model::ids::JobId;
use muster_proto::v1;
use muster_tests::{Cluster, Shape, eventually, skip};

const THREE_WORKERS: Shape = Shape {
    replicas: 1,
    workers: 3,
    gpus: 0,
};

fn templates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/launch")
}

/// Copies a template next to the cluster and adapts its job file to that place; returns the job file.
fn copied(cluster: &Cluster, name: &str) -> PathBuf {
    let marker = cluster.write(&format!("{name}.copied"), "");
    let folder = marker.with_file_name(name);
    fs::create_dir(&folder).unwrap();
    for entry in fs::read_dir(templates().join(name)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    let path = folder.join("job.yaml");
    let text = fs::read_to_string(&path).unwrap();
    let shared = format!("/shared/launch/{name}");
    assert!(text.contains(&shared), "{text}");
    fs::write(&path, text.replace(&shared, folder.to_str().unwrap())).unwrap();
    path
}

/// Runs a job file, which must succeed; returns the output of its tasks, task by task.
async fn run(cluster: &Cluster, file: &Path, tasks: u32) -> Vec<String> {
    let client = cluster.client().await;
    // Until all replicas are known to be of this build, gangs start one by one.
    let submitted = eventually("the job is submitted", async || {
        let args = ["job", "submit", "-f", file.to_str().unwrap(), "-o", "name"];
        let run = cluster.muster(&args).await;
        run.ok().trim().parse().ok().map(JobId)
    })
    .await;
    let ended = client.wait_job(submitted).await.unwrap();
    let mut printed = Vec::new();
    for task in 0..tasks {
        let (job, task) = (submitted.to_string(), task.to_string());
        let args = ["job", "logs", &job, "--task", &task];
        printed.push(cluster.muster(&args).await.ok());
    }
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded, "{printed:?}");
    printed
}

/// Whether a program exists and runs.
fn answers(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

#[tokio::test]
async fn plain_programs_find_each_other() {
    if !answers("python3", &["--version"]) {
        return skip("python3 is not installed");
    }
    let cluster = Cluster::start(THREE_WORKERS).await;
    let file = copied(&cluster, "plain");
    let printed = run(&cluster, &file, 4).await;
    for (rank, text) in printed.iter().enumerate() {
        assert_eq!(text, &format!("rank {rank} of 4: the sum is 10\n"));
    }
}

#[tokio::test]
async fn torchrun_starts_as_one_node_of_a_gang() {
    // Debian's package is for the system's own Python, which need not be the first one in the path.
    let is_usable = |python: &&&str| answers(python, &["-c", "import torch.distributed"]);
    let Some(python) = ["python3", "/usr/bin/python3"].iter().find(is_usable) else {
        return skip("PyTorch cannot be imported (Debian: python3-torch; or pip install torch)");
    };
    let cluster = Cluster::start(THREE_WORKERS).await;
    let file = copied(&cluster, "torchrun");
    if let Some(folder) = Path::new(python).parent().and_then(Path::to_str) {
        let path = std::env::var("PATH").unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let first = format!("environment: {{PATH: '{folder}:{path}'}}\n");
        fs::write(&file, text + if folder.is_empty() { "" } else { &first }).unwrap();
    }
    // Debian 12's version 1.13 fails under Python 3.11 unless the output of each process is explicitly
    // copied.
    let is_old = "import sys, torch; sys.exit(torch.__version__ >= '2')";
    if answers(python, &["-c", is_old]) {
        let launcher = file.with_file_name("launch.sh");
        let text = fs::read_to_string(&launcher).unwrap();
        let copying = text.replace("--max_restarts=0", "--max_restarts=0 -r 0:1,1:1 -t 0:1,1:1");
        fs::write(&launcher, copying).unwrap();
    }
    let printed = run(&cluster, &file, 2).await.concat();
    for rank in 0..4 {
        let line = format!("rank {rank} of 4: the sum is 10\n");
        assert!(printed.contains(&line), "{printed}");
    }
}

#[tokio::test]
async fn mpirun_starts_its_daemons_through_the_gangs_tasks() {
    if !answers("mpirun", &["--version"]) {
        return skip("mpirun is not installed (Debian: openmpi-bin)");
    }
    let cluster = Cluster::start(THREE_WORKERS).await;
    let file = copied(&cluster, "mpi");
    // Open MPI refuses to run as root unless it is explicitly allowed.
    let text = fs::read_to_string(&file).unwrap();
    let as_root =
        "environment: {OMPI_ALLOW_RUN_AS_ROOT: '1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: '1'}\n";
    fs::write(&file, text + as_root).unwrap();
    let printed = run(&cluster, &file, 3).await.concat();
    for rank in 0..3 {
        let line = format!("process {rank} of 3, in task {rank}\n");
        assert!(printed.contains(&line), "{printed}");
    }
}

/// Unexpected connections to the launcher of the `mpirun` template; its members must connect nevertheless.
const STRANGERS: &str = r#"
import socket, sys, threading
sys.path.insert(0, sys.argv[1])
import launch

members = launch.Members()
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=launch.serve, args=(server, members), daemon=True).start()
connect = lambda: socket.create_connection(server.getsockname())
silent = connect()
for data in [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\xff\xfe\n", b"7\n", b"{}\n"]:
    connect().sendall(data)
member = connect()
launch.send(member, member=1)
members.get(1)
print("the member is known")
"#;

#[test]
fn unknown_connections_to_the_port_of_mpirun_delay_no_member() {
    if !answers("python3", &["--version"]) {
        return skip("python3 is not installed");
    }
    let ran = Command::new("python3")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args(["-c", STRANGERS])
        .arg(templates().join("mpi"))
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(ran.stdout, b"the member is known\n", "{ran:?}");
}
