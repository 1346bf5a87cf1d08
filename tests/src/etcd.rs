//! A real etcd on loopback, and the means to hurt it.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::eventually::eventually;
use crate::processes::{is_alive, kill};

/// Whether `etcd` and `etcdctl` can be run here (Debian: `etcd-server` and `etcd-client`).
#[must_use]
pub fn has_etcd() -> bool {
    let runs = |program: &str, word: &str| {
        let mut command = Command::new(program);
        let quiet = command
            .arg(word)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        quiet.status().is_ok_and(|status| status.success())
    };
    runs("etcd", "--version") && runs("etcdctl", "version")
}

/// An etcd of one member. It ends when it is dropped.
#[derive(Debug)]
pub struct EtcdServer {
    /// `127.0.0.1:PORT`.
    pub endpoint: String,
    peer: String,
    quota_bytes: u64,
    folder: TempDir,
    /// Its data lie in a folder with this number.
    life: u32,
    child: Option<Child>,
}

impl EtcdServer {
    /// Starts one whose database is full at so many bytes.
    ///
    /// # Panics
    /// If it does not come up.
    pub async fn start(quota_bytes: u64) -> Self {
        let free = || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().to_string()
        };
        let mut server = Self {
            endpoint: free(),
            peer: free(),
            quota_bytes,
            folder: tempfile::tempdir().unwrap(),
            life: 0,
            child: None,
        };
        server.start_again().await;
        server
    }

    /// Starts it on the data that it left.
    ///
    /// # Panics
    /// If it does not come up.
    pub async fn start_again(&mut self) {
        let path = |name: String| self.folder.path().join(name);
        let log = File::create(path(format!("log-{}", self.life))).unwrap();
        let peer = format!("http://{}", self.peer);
        let child = Command::new("etcd")
            .args(["--name", "only", "--data-dir"])
            .arg(path(format!("data-{}", self.life)))
            .arg(format!("--listen-client-urls=http://{}", self.endpoint))
            .arg(format!("--advertise-client-urls=http://{}", self.endpoint))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=only={peer}"))
            .arg(format!("--quota-backend-bytes={}", self.quota_bytes))
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

    /// What `etcdctl` prints; none if it fails.
    ///
    /// # Panics
    /// If it cannot be run.
    #[must_use]
    pub fn ctl(&self, words: &[&str]) -> Option<String> {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.endpoint, "--command-timeout=2s"])
            .args(words)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(text)
    }

    /// All keys that begin so, without that, and their values; none if etcd does not answer.
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
    /// If it does not run.
    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The next start finds no data.
    pub fn lose_data(&mut self) {
        self.life += 1;
    }

    /// Lets it hear and say nothing (`kill -STOP`), as whoever is cut off.
    ///
    /// # Panics
    /// If it does not run.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// If it does not run.
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
            // It may have ended by itself, which is as good.
            drop(child.wait());
        }
    }
}
