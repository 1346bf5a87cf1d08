//! Test cluster of real processes on loopback.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use muster_client::{Client, ClientConfig};
use muster_model::ids::JobId;
use muster_ports::ReservedAddresses;
use muster_proto::v1;
use serde_json::Value;
use tempfile::TempDir;

use crate::binary::muster_binary;
use crate::cluster_folder::{end, sweep};
use crate::command::{Run, muster};
use crate::eventually::{TIMEOUT, eventually};
use crate::member::Member;
use crate::processes::mentioning;
use crate::tmpfs::Tmpfs;
use crate::watchdog::{Watchdog, show_logs};

/// Size of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Number of scheduler replicas.
    pub replicas: usize,
    /// Number of workers, each a host of its own.
    pub workers: usize,
    /// Number of simulated GPUs per host.
    pub gpus: u32,
}

impl Default for Shape {
    /// Three replicas, two workers with eight GPUs each.
    fn default() -> Self {
        Self {
            replicas: 3,
            workers: 2,
            gpus: 8,
        }
    }
}

/// A cluster started by `muster dev`. Dropping it ends everything, and fails the test if a process or file
/// remains.
#[derive(Debug)]
pub struct Cluster {
    /// Its replicas, in order of their ids from 1.
    pub replicas: Vec<Member>,
    /// Its workers: `node01`, `node02`, and the added ones.
    pub workers: Vec<Member>,
    /// gRPC addresses of its replicas.
    pub addresses: Vec<String>,
    /// Folder of all its files.
    pub folder: PathBuf,
    /// Small file systems mounted within the folder.
    mounts: Vec<Tmpfs>,
    dev: Child,
    /// Files of the test itself.
    own: TempDir,
    /// Ports of added members.
    ports: Vec<ReservedAddresses>,
    _watchdog: Watchdog,
}

impl Cluster {
    /// Starts a cluster and waits until it is ready.
    ///
    /// # Panics
    /// If it does not become ready.
    pub async fn start(shape: Shape) -> Self {
        Self::start_with(shape, &[]).await
    }

    /// Like [`Cluster::start`], with these variables for all its processes.
    ///
    /// # Panics
    /// Like [`Cluster::start`].
    pub async fn start_with(shape: Shape, variables: &[(&str, &str)]) -> Self {
        let own = tempfile::Builder::new()
            .prefix("muster-test-")
            .tempdir()
            .unwrap();
        let ready_file = own.path().join("ready.json");
        let log = File::create(own.path().join("dev.log")).unwrap();
        let mut dev = Command::new(muster_binary())
            .envs(variables.iter().copied())
            .args(["dev", "--replicas", &shape.replicas.to_string()])
            .args(["--workers", &shape.workers.to_string()])
            .args(["--gpus", &shape.gpus.to_string()])
            .arg("--ready-file")
            .arg(&ready_file)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let described = eventually("muster dev is ready", async || {
            let ended = dev.try_wait().unwrap();
            let text = fs::read_to_string(own.path().join("dev.log")).unwrap_or_default();
            assert!(ended.is_none(), "muster dev ended ({ended:?}): {text}");
            serde_json::from_slice::<Value>(&fs::read(&ready_file).ok()?).ok()
        })
        .await;
        Self::described(&described, dev, own, variables)
    }

    fn described(value: &Value, dev: Child, own: TempDir, variables: &[(&str, &str)]) -> Self {
        let members = |name: &str, role| {
            let list = value[name].as_array().unwrap().iter();
            list.map(|value| Member::described(role, value, variables))
                .collect()
        };
        let addresses = value["addresses"].as_array().unwrap().iter();
        let folder = PathBuf::from(value["folder"].as_str().unwrap());
        Self {
            _watchdog: Watchdog::over(folder.clone()),
            replicas: members("replicas", "scheduler"),
            workers: members("workers", "worker"),
            addresses: addresses
                .map(|address| address.as_str().unwrap().to_owned())
                .collect(),
            folder,
            mounts: Vec::new(),
            dev,
            own,
            ports: Vec::new(),
        }
    }

    /// A client that knows all replicas.
    ///
    /// # Panics
    /// If no replica answers.
    pub async fn client(&self) -> Client {
        // If the watchdog killed the cluster, the test must fail soon.
        let config = ClientConfig {
            reconnect_deadline: TIMEOUT,
            ..ClientConfig::new(self.addresses.clone())
        };
        Client::connect(config).await.unwrap()
    }

    /// A client that starts with one replica and learns the others from it.
    ///
    /// # Panics
    /// If it does not answer.
    pub async fn client_of(&self, replica: usize) -> Client {
        Client::connect(ClientConfig::new([self.addresses[replica].clone()]))
            .await
            .unwrap()
    }

    /// A command for this cluster, to be started by the test.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> tokio::process::Command {
        let mut command = muster(args);
        command
            .env("MUSTER_ADDR", self.addresses.join(","))
            .current_dir(self.own.path());
        command
    }

    /// Runs a command on the cluster to its end.
    pub async fn muster(&self, args: &[&str]) -> Run {
        Run::of(self.command(args), "").await
    }

    /// Runs a command on the cluster with this standard input.
    pub async fn muster_reading(&self, args: &[&str], input: &str) -> Run {
        Run::of(self.command(args), input).await
    }

    /// Creates a file in the working directory of commands.
    ///
    /// # Panics
    /// If it cannot be written.
    #[must_use]
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.own.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Index of the leading replica, once there is one and all live replicas know it.
    pub async fn leader(&self, client: &Client) -> usize {
        eventually("a replica leads", async || {
            let status = client.status(v1::Consistency::Linearizable).await.ok()?;
            let leader = status.leader_address;
            let index = self.addresses.iter().position(|known| *known == leader)?;
            self.replicas[index].is_running().then_some(index)
        })
        .await
    }

    /// Adds a worker with the configuration of `node01`, with `edit` applied to its settings; not started.
    /// Returns its index.
    ///
    /// # Panics
    /// If its settings cannot be written.
    pub fn add_worker(&mut self, name: &str, edit: impl FnOnce(&mut Value)) -> usize {
        let folder = self.folder.join(name);
        let mut settings = self.workers[0].settings();
        settings["name"] = name.into();
        settings["data_dir"] = folder.join("data").to_str().unwrap().into();
        // The port is in use.
        if let Some(settings) = settings.as_object_mut() {
            settings.remove("metrics_listen");
        }
        edit(&mut settings);
        let member = self.workers[0].sibling(&folder, name, &settings);
        self.workers.push(member);
        self.workers.len() - 1
    }

    /// Reserves an address on loopback as long as the cluster exists.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn reserve_address(&mut self) -> String {
        let reserved = ReservedAddresses::draw(1).unwrap();
        let address = reserved.addresses()[0].to_string();
        self.ports.push(reserved);
        address
    }

    /// Adds a replica with the configuration of the first one, with the next id and an address of its own,
    /// that is in no group: it joins the known replicas on its own, or waits to be added. Not started.
    /// Returns its index.
    ///
    /// # Panics
    /// If there is no free port, or its settings cannot be written.
    pub fn add_replica(&mut self, joins: bool) -> usize {
        let id = self.replicas.len() + 1;
        let name = format!("replica-{id}");
        let folder = self.folder.join(&name);
        let address = self.reserve_address();
        let mut settings = self.replicas[0].settings();
        settings["replica_id"] = id.into();
        settings["listen"] = address.as_str().into();
        settings["peers"] = serde_json::json!({ id.to_string(): address });
        settings["join"] = if joins {
            self.addresses.clone().into()
        } else {
            Value::Array(Vec::new())
        };
        settings["bootstrap"] = false.into();
        settings["metrics_listen"] = Value::Null;
        settings["data_dir"] = folder.join("data").to_str().unwrap().into();
        let member = self.replicas[0].sibling(&folder, &name, &settings);
        self.replicas.push(member);
        self.addresses.push(address);
        self.replicas.len() - 1
    }

    /// Mounts a small file system in the cluster's folder; it is unmounted with the cluster.
    ///
    /// # Panics
    /// If it cannot be mounted.
    pub fn mount(&mut self, path: &Path, size_mib: u64) {
        assert!(path.starts_with(&self.folder), "{}", path.display());
        self.mounts.push(Tmpfs::mount(path, size_mib));
    }

    /// The small file system mounted over a folder.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn mounted(&self, path: &Path) -> &Tmpfs {
        let mut mounts = self.mounts.iter();
        mounts.find(|mount| mount.path() == path).unwrap()
    }

    /// Live processes of a job's tasks, without supervisors.
    #[must_use]
    pub fn processes_of(&self, job: JobId) -> Vec<i32> {
        let folder = self.folder.to_str().unwrap();
        let control = format!("MUSTER_CTL_DIR={folder}/");
        let job = format!("MUSTER_JOB_ID={job}\0");
        mentioning(&[control.as_bytes(), job.as_bytes()])
    }

    /// Live processes of a worker's host: agent, supervisors, tasks.
    #[must_use]
    pub fn processes_on(&self, worker: usize) -> Vec<i32> {
        let folder = self.folder.join(&self.workers[worker].name).join("");
        mentioning(&[folder.to_str().unwrap().as_bytes()])
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let is_failing = std::thread::panicking();
        if is_failing {
            show_logs(&self.folder);
        }
        self.workers.clear();
        self.replicas.clear();
        let left = sweep(&self.folder);
        self.mounts.clear();
        let ended = end(&mut self.dev);
        let is_gone = !self.folder.exists();
        drop(fs::remove_dir_all(&self.folder));
        if !is_failing {
            assert!(left.is_empty(), "processes survive SIGKILL: {left:?}");
            assert!(
                ended.is_some_and(|status| status.success()) && is_gone,
                "muster dev ended by {ended:?}, its folder is gone: {is_gone}"
            );
        }
    }
}
