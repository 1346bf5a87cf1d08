//! Real Prometheus that scrapes a cluster.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use muster_ports::ReservedAddresses;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::eventually::eventually;

/// Whether `prometheus` and `promtool` can be run here.
#[must_use]
pub fn has_prometheus() -> bool {
    let runs = |program: &str| {
        let mut command = Command::new(program);
        let quiet = command
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        quiet.status().is_ok_and(|status| status.success())
    };
    runs("prometheus") && runs("promtool")
}

/// Fetches a page of a server on this machine.
///
/// # Errors
/// If it does not answer.
pub async fn page(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let body = answer
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned());
    body.ok_or_else(|| std::io::Error::other(answer))
}

/// A Prometheus that scrapes its targets every second and evaluates rules. It ends when it is dropped.
#[derive(Debug)]
pub struct Prometheus {
    address: String,
    child: Child,
    _ports: ReservedAddresses,
    _folder: TempDir,
}

impl Prometheus {
    /// Starts one that scrapes targets by job name, with a rules file.
    ///
    /// # Panics
    /// If it does not become ready.
    pub async fn start(jobs: &[(&str, Vec<String>)], rules: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\nrule_files: \
             [{:?}]\nscrape_configs:\n",
            fs::canonicalize(rules).unwrap()
        );
        for (job, targets) in jobs {
            writeln!(
                config,
                "- {{job_name: {job}, static_configs: [{{targets: {targets:?}}}]}}"
            )
            .unwrap();
        }
        let file = folder.path().join("prometheus.yaml");
        fs::write(&file, config).unwrap();
        let ports = ReservedAddresses::draw(1).unwrap();
        let address = ports.addresses()[0].to_string();
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut prometheus = Self {
            address,
            child,
            _ports: ports,
            _folder: folder,
        };
        eventually("Prometheus is ready", async || {
            let ended = prometheus.child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended: {ended:?}");
            let answer = page(&prometheus.address, "/-/ready").await.ok()?;
            answer.contains("Ready").then_some(())
        })
        .await;
        prometheus
    }

    /// Response of the API for a path below `/api/v1/`.
    ///
    /// # Errors
    /// The API's error message.
    ///
    /// # Panics
    /// If it does not answer.
    pub async fn api(&self, path: &str) -> Result<Value, String> {
        let text = page(&self.address, &format!("/api/v1/{path}"))
            .await
            .unwrap();
        let answer: Value = serde_json::from_str(&text).unwrap();
        if answer["status"] == "success" {
            return Ok(answer["data"].clone());
        }
        Err(answer["error"].to_string())
    }

    /// Current series of an expression, without those whose value is not a number.
    ///
    /// # Errors
    /// The reason why it cannot be evaluated.
    ///
    /// # Panics
    /// Like [`Prometheus::ask`].
    pub async fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let mut encoded = String::new();
        for byte in expression.bytes() {
            write!(encoded, "%{byte:02X}").unwrap();
        }
        let data = self.api(&format!("query?query={encoded}")).await?;
        let mut series = data["result"].as_array().cloned().unwrap_or_default();
        series.retain(|one| one["value"][1] != "NaN");
        Ok(series)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may already have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
