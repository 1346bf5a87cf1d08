//! Cluster with certificates: replicas and a worker on loopback that require proof of identity. All
//! replicas but the first have the authority's key.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use muster_client::{Client, ClientConfig, TlsSettings, Token};
use muster_ports::ReservedAddresses;
use muster_proto::v1;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::binary::muster_binary;
use crate::command::{Run, muster};
use crate::eventually::eventually;
use crate::processes::{kill, processes_naming};
use crate::watchdog::{Watchdog, show_logs};

/// Name of the only worker.
pub const SECURED_WORKER: &str = "gpu-1";

/// Three replicas and a worker with certificates from an authority of their own. Dropping it ends
/// everything.
#[derive(Debug)]
pub struct SecuredCluster {
    /// gRPC addresses of its replicas.
    pub addresses: Vec<String>,
    /// Metrics addresses of its replicas.
    pub metrics: Vec<String>,
    folder: TempDir,
    members: Vec<Child>,
    _ports: ReservedAddresses,
    _watchdog: Watchdog,
}

/// Account for tasks: the cluster's users have no accounts on the test machine.
fn as_this_user() -> Value {
    json!({"run_as": "agent", "allow_root": true})
}

impl SecuredCluster {
    /// Starts a cluster and waits until it is ready and its worker is registered.
    ///
    /// # Panics
    /// If it does not become ready.
    pub async fn start() -> Self {
        Self::start_with(&json!({})).await
    }

    /// Like [`SecuredCluster::start`], with additional settings for the replicas.
    ///
    /// # Panics
    /// Like [`SecuredCluster::start`].
    pub async fn start_with(settings: &Value) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("muster-test-")
            .tempdir()
            .unwrap();
        let ports = ReservedAddresses::draw(6).unwrap();
        let mut addresses: Vec<String> =
            ports.addresses().iter().map(ToString::to_string).collect();
        let metrics = addresses.split_off(3);
        let mut cluster = Self {
            addresses,
            metrics,
            _ports: ports,
            _watchdog: Watchdog::over(folder.path().to_owned()),
            folder,
            members: Vec::new(),
        };
        cluster.cert(&["ca"]).await;
        for replica in 1..=3 {
            cluster
                .cert(&[
                    "replica",
                    &format!("replica-{replica}"),
                    "--name",
                    "127.0.0.1",
                ])
                .await;
        }
        cluster.cert(&["worker", SECURED_WORKER]).await;
        for replica in 1..=3 {
            cluster.start_replica(replica, settings);
        }
        cluster.start_worker();
        let admin = cluster.client_of(Some("replica-1"), None).await;
        eventually("the worker is registered", async || {
            let all = v1::ListHostsRequest::default();
            let hosts = admin.list_hosts(all).await.ok()?.1;
            hosts
                .iter()
                .find(|host| host.name == SECURED_WORKER)
                .map(drop)
        })
        .await;
        cluster
    }

    /// Creates a certificate.
    ///
    /// # Panics
    /// If that fails.
    pub async fn cert(&self, args: &[&str]) {
        let folder = self.folder.path().to_str().unwrap();
        let args = [&["cert"], args, &["--folder", folder]].concat();
        drop(Run::of(muster(&args), "").await.ok());
    }

    /// A file of the cluster's folder, by its name.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// TLS settings of a process with the certificates of this name; without a name it only trusts the
    /// authority.
    #[must_use]
    pub fn tls(&self, name: Option<&str>) -> TlsSettings {
        TlsSettings {
            ca: Some(self.file("ca.pem")),
            certificate: name.map(|name| self.file(&format!("{name}.pem"))),
            key: name.map(|name| self.file(&format!("{name}.key"))),
            ca_key: None,
        }
    }

    /// A client with a certificate, or a token, or neither.
    ///
    /// # Panics
    /// If the certificates cannot be read.
    pub async fn client_of(&self, certificate: Option<&str>, token: Option<Token>) -> Client {
        let config = ClientConfig {
            tls: self.tls(certificate),
            token,
            discover: false,
            ..ClientConfig::new(self.addresses.clone())
        };
        Client::connect(config).await.unwrap()
    }

    /// The command line with a token, or with a replica's certificate if there is none.
    pub async fn muster(&self, token: Option<&Token>, args: &[&str]) -> Run {
        let mut command = muster(args);
        command.env("MUSTER_ADDR", self.addresses.join(","));
        command.env("MUSTER_CACERT", self.file("ca.pem"));
        match token {
            Some(token) => command.env("MUSTER_TOKEN", token.text()),
            None => command
                .env("MUSTER_CERT", self.file("replica-1.pem"))
                .env("MUSTER_KEY", self.file("replica-1.key")),
        };
        Run::of(command, "").await
    }

    /// Adds a user by the command line, with a replica's certificate; returns the token.
    ///
    /// # Panics
    /// If the cluster refuses.
    pub async fn add_user(&self, args: &[&str]) -> Token {
        let args = [&["user", "add"], args, &["--quiet"]].concat();
        Token::new(&self.muster(None, &args).await.ok())
    }

    /// Everything that the processes of the cluster wrote to their logs and data, as bytes.
    ///
    /// # Panics
    /// If a file cannot be read.
    #[must_use]
    pub fn written(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        collect(self.folder.path(), &mut files);
        files
    }

    /// Kills the replica that was started first.
    ///
    /// # Panics
    /// If it cannot be waited for.
    pub fn kill_first_replica(&mut self) {
        let mut first = self.members.remove(0);
        first.kill().unwrap();
        first.wait().unwrap();
    }

    /// Whether all started processes are running.
    ///
    /// # Panics
    /// If a child's status cannot be read.
    pub fn all_run(&mut self) -> bool {
        let mut members = self.members.iter_mut();
        members.all(|member| member.try_wait().unwrap().is_none())
    }

    fn start_replica(&mut self, replica: usize, others: &Value) {
        let peers: serde_json::Map<String, Value> = self
            .addresses
            .iter()
            .zip(1..)
            .map(|(address, id)| (id.to_string(), json!(address)))
            .collect();
        let name = format!("replica-{replica}");
        let mut settings = json!({
            "replica_id": replica,
            "listen": self.addresses[replica - 1],
            "peers": peers,
            "metrics_listen": self.metrics[replica - 1],
            "data_dir": self.file(&format!("{name}-data")),
            "raft": {"heartbeat_ms": 100, "election_ms_min": 500, "election_ms_max": 1_000},
            "tls": TlsSettings {
                ca_key: (replica > 1).then(|| self.file("ca.key")),
                ..self.tls(Some(&name))
            },
        });
        for (option, value) in others.as_object().into_iter().flatten() {
            settings[option] = value.clone();
        }
        self.start_member("scheduler", &name, &settings);
    }

    /// Writes settings of a worker that joins with the token in a file; returns their file.
    ///
    /// # Panics
    /// If it cannot be written.
    #[must_use]
    pub fn joining_worker(&self, name: &str, token_file: &Path) -> PathBuf {
        let settings = json!({
            "name": name,
            "address": "127.0.0.1",
            "schedulers": self.addresses,
            "data_dir": self.file(&format!("{name}-data")),
            "gpus": {"simulated": {"count": 2, "model": "H100", "memory_mib": 81_920, "timeline": null}},
            "health": {"host_root": "off", "kernel_log": "off"},
            "join_token_file": token_file,
            "tasks": as_this_user(),
        });
        let config = self.file(&format!("{name}.json"));
        fs::write(&config, settings.to_string()).unwrap();
        config
    }

    /// Starts a worker with these settings; returns its index for `stop`.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start_joining(&mut self, name: &str) -> usize {
        self.spawn("worker", name);
        self.members.len() - 1
    }

    /// Kills a started process, and waits until it is gone.
    ///
    /// # Panics
    /// If it cannot be waited for.
    pub fn stop(&mut self, member: usize) {
        self.members[member].kill().unwrap();
        self.members[member].wait().unwrap();
    }

    /// Log of a process.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn log(&self, name: &str) -> String {
        fs::read_to_string(self.file(&format!("{name}.log"))).unwrap()
    }

    fn start_worker(&mut self) {
        let settings = json!({
            "name": SECURED_WORKER,
            "address": "127.0.0.1",
            "schedulers": self.addresses,
            "data_dir": self.file("worker-data"),
            "gpus": {"simulated": {"count": 2, "model": "H100", "memory_mib": 81_920, "timeline": null}},
            "health": {"host_root": "off", "kernel_log": "off"},
            "tls": self.tls(Some(SECURED_WORKER)),
            "tasks": as_this_user(),
        });
        self.start_member("worker", SECURED_WORKER, &settings);
    }

    fn start_member(&mut self, role: &str, name: &str, settings: &Value) {
        let config = self.file(&format!("{name}.json"));
        fs::write(&config, settings.to_string()).unwrap();
        self.spawn(role, name);
    }

    fn spawn(&mut self, role: &str, name: &str) {
        let config = self.file(&format!("{name}.json"));
        let log = File::create(self.file(&format!("{name}.log"))).unwrap();
        let member = Command::new(muster_binary())
            .args([role, "--config"])
            .arg(config)
            .env("MUSTER_LOG", "debug,h2=info")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.members.push(member.unwrap());
    }
}

impl Drop for SecuredCluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            // It may already have ended.
            drop(member.kill());
            drop(member.wait());
        }
        let folder = self.folder.path().to_str().unwrap_or_default();
        processes_naming(folder).into_iter().for_each(kill);
        if std::thread::panicking() {
            show_logs(self.folder.path());
        }
    }
}

fn collect(folder: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if let Ok(bytes) = fs::read(&path) {
            // Files of a database may appear and disappear.
            files.push((path, bytes));
        }
    }
}
