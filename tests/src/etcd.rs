//! Real etcd on loopback with fault injection.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use muster_ports::ReservedAddresses;
use muster_tls::{PeerRole, issue};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::eventually::eventually;
use crate::processes::{is_alive, kill};

/// Whether `etcd` and `etcdctl` can be run here (Debian: `etcd-server` and `etcd-client`).
#[must_use]
pub fn has_etcd() -> bool {
    let runs = |program: &str, argument: &str| {
        let mut command = Command::new(program);
        let quiet = command
            .arg(argument)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        quiet.status().is_ok_and(|status| status.success())
    };
    runs("etcd", "--version") && runs("etcdctl", "version")
}

/// Validity of certificates in days: much longer than a test.
const CERTIFICATE_DAYS: u64 = 1;

/// An etcd with one member. It ends when it is dropped.
#[derive(Debug)]
pub struct EtcdServer {
    /// `127.0.0.1:PORT`, or `https://127.0.0.1:PORT`.
    pub endpoint: String,
    peer: String,
    _ports: ReservedAddresses,
    quota_bytes: u64,
    /// Whether it uses TLS with client certificates.
    is_secured: bool,
    folder: TempDir,
    /// Number of its current data folder.
    life: u32,
    child: Option<Child>,
}

impl EtcdServer {
    /// Starts one whose database is full at the given number of bytes.
    ///
    /// # Panics
    /// If it does not become ready.
    pub async fn start(quota_bytes: u64) -> Self {
        let mut server = Self::new(quota_bytes);
        server.start_again().await;
        server
    }

    /// Like [`EtcdServer::start`], with TLS: it presents a certificate and requires one, from an authority
    /// of its own. Its folder contains the authority's `ca.pem`, and `client.pem` with `client.key` for
    /// clients; its endpoint begins with `https://`.
    ///
    /// # Panics
    /// If it does not become ready.
    pub async fn start_secured(quota_bytes: u64) -> Self {
        let mut server = Self::new(quota_bytes);
        server.is_secured = true;
        server.endpoint = format!("https://{}", server.endpoint);
        let folder = server.folder.path();
        issue::authority(folder, "etcd").unwrap();
        let certify = |file: &str, role, names: &[String]| {
            issue::certificate(folder, file, &role, names, CERTIFICATE_DAYS).unwrap();
        };
        // A replica's certificate is both server and client certificate; etcd needs both, because it also
        // connects to itself.
        certify("etcd", PeerRole::Replica, &["127.0.0.1".to_owned()]);
        certify("client", PeerRole::User("client".to_owned()), &[]);
        server.start_again().await;
        server
    }

    fn new(quota_bytes: u64) -> Self {
        let ports = ReservedAddresses::draw(2).unwrap();
        Self {
            endpoint: ports.addresses()[0].to_string(),
            peer: ports.addresses()[1].to_string(),
            _ports: ports,
            quota_bytes,
            is_secured: false,
            folder: tempfile::tempdir().unwrap(),
            life: 0,
            child: None,
        }
    }

    /// A file of its folder, by its name.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts it on its existing data.
    ///
    /// # Panics
    /// If it does not become ready.
    pub async fn start_again(&mut self) {
        let log = File::create(self.file(&format!("log-{}", self.life))).unwrap();
        let peer = format!("http://{}", self.peer);
        let client = if self.is_secured {
            self.endpoint.clone()
        } else {
            format!("http://{}", self.endpoint)
        };
        let mut command = Command::new("etcd");
        command
            .args(["--name", "only", "--data-dir"])
            .arg(self.file(&format!("data-{}", self.life)))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=only={peer}"))
            .arg(format!("--quota-backend-bytes={}", self.quota_bytes));
        if self.is_secured {
            command.arg("--client-cert-auth");
            for (option, file) in [
                ("--trusted-ca-file", "ca.pem"),
                ("--cert-file", "etcd.pem"),
                ("--key-file", "etcd.key"),
            ] {
                command.arg(option).arg(self.file(file));
            }
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        eventually("etcd is ready", async || {
            self.ctl(&["endpoint", "health"]).map(drop)
        })
        .await;
    }

    /// Output of `etcdctl`; `None` if it fails.
    ///
    /// # Panics
    /// If it cannot be run.
    #[must_use]
    pub fn ctl(&self, args: &[&str]) -> Option<String> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args([
            "--endpoints",
            &self.endpoint,
            "--command-timeout=2s",
        ]);
        if self.is_secured {
            for (option, file) in [
                ("--cacert", "ca.pem"),
                ("--cert", "client.pem"),
                ("--key", "client.key"),
            ] {
                command.arg(option).arg(self.file(file));
            }
        }
        let output = command.args(args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(text)
    }

    /// All keys with this prefix, without the prefix, and their values; `None` if etcd does not answer.
    #[must_use]
    pub fn below(&self, prefix: &str) -> BTreeMap<String, Value> {
        let text = self.ctl(&["get", "--prefix", prefix]).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let pairs = lines.chunks_exact(2).map(|pair| {
            let value = serde_json::from_str(pair[1]).unwrap_or_else(|_| pair[1].into());
            (pair[0].trim_start_matches(prefix).to_owned(), value)
        });
        pairs.collect()
    }

    /// Kills it (`kill -9`).
    ///
    /// # Panics
    /// If it is not running.
    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Makes the next start find no data.
    pub fn lose_data(&mut self) {
        self.life += 1;
    }

    /// Stops it from receiving and sending (`kill -STOP`), like a partitioned server.
    ///
    /// # Panics
    /// If it is not running.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes it after `freeze`.
    ///
    /// # Panics
    /// If it is not running.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().unwrap().id().cast_signed();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let pid = child.id().cast_signed();
            if is_alive(pid) {
                kill(pid);
            }
            // It may already have ended.
            drop(child.wait());
        }
    }
}
