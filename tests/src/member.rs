//! Process of a cluster: a replica or a worker's agent.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::binary::muster_binary;
use crate::cluster_folder::ask_to_end;
use crate::processes::{is_alive, kill};

/// A replica or a worker's agent.
#[derive(Debug)]
pub struct Member {
    /// `replica-1`, `node01`.
    pub name: String,
    /// Settings file.
    pub config: PathBuf,
    /// Log file.
    pub log: PathBuf,
    role: &'static str,
    /// Environment variables of all processes of its cluster, in addition to those of the test.
    variables: Vec<(String, String)>,
    pid: i32,
    /// Present once the test has started it; before that it is a child of `muster dev`.
    child: Option<Child>,
}

impl Member {
    /// A member as described by `muster dev`, which has these variables.
    pub(crate) fn described(role: &'static str, value: &Value, variables: &[(&str, &str)]) -> Self {
        let variables = variables.iter();
        let text = |name: &str| value[name].as_str().unwrap().to_owned();
        Self {
            name: text("name"),
            config: text("config").into(),
            log: text("log").into(),
            role,
            variables: variables
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            pid: i32::try_from(value["pid"].as_i64().unwrap()).unwrap(),
            child: None,
        }
    }

    /// A member of the same role with its own settings, in a new folder; not started.
    pub(crate) fn sibling(&self, folder: &Path, name: &str, settings: &Value) -> Self {
        fs::create_dir_all(folder).unwrap();
        let config = folder.join("config.json");
        fs::write(&config, settings.to_string()).unwrap();
        Self {
            name: name.to_owned(),
            config,
            log: folder.join("log"),
            role: self.role,
            variables: self.variables.clone(),
            pid: 0,
            child: None,
        }
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it is running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.pid != 0 && is_alive(self.pid)
    }

    /// All of its output.
    #[must_use]
    pub fn printed(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Parsed settings.
    ///
    /// # Panics
    /// If they cannot be read.
    #[must_use]
    pub fn settings(&self) -> Value {
        serde_json::from_slice(&fs::read(&self.config).unwrap()).unwrap()
    }

    /// Its data directory.
    ///
    /// # Panics
    /// If its settings do not name one.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.settings()["data_dir"].as_str().unwrap().into()
    }

    /// Kills it (`kill -9`) and waits until it is gone.
    ///
    /// # Panics
    /// If the child cannot be waited for.
    pub fn kill(&mut self) {
        match &mut self.child {
            Some(child) => {
                child.kill().unwrap();
                child.wait().unwrap();
            }
            None => kill(self.pid),
        }
        while is_alive(self.pid) {
            std::thread::yield_now();
        }
    }

    /// Asks it to end (SIGTERM), and waits until it is gone; kills it if it does not end.
    ///
    /// # Panics
    /// If it is not running.
    pub fn end(&mut self) {
        assert!(self.is_running(), "{} is not running", self.name);
        ask_to_end(self.pid);
        self.kill();
    }

    /// Starts it on its existing data, with these variables in addition to those of its cluster.
    ///
    /// # Panics
    /// If it is still running or cannot be started.
    pub fn start_with(&mut self, variables: &[(&str, &str)]) {
        assert!(!self.is_running(), "{} runs", self.name);
        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .unwrap();
        let child = Command::new(muster_binary())
            .args([self.role, "--config"])
            .arg(&self.config)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.pid = child.id().cast_signed();
        self.child = Some(child);
    }

    /// Starts it on its existing data.
    ///
    /// # Panics
    /// Like [`Member::start_with`].
    pub fn start(&mut self) {
        self.start_with(&[]);
    }

    /// Exit code, if the test started it and it has ended.
    ///
    /// # Panics
    /// If the child cannot be waited for.
    pub fn exit_code(&mut self) -> Option<i32> {
        let status = self.child.as_mut()?.try_wait().unwrap()?;
        Some(status.code().unwrap_or(-1))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may already have ended.
            drop(child.kill());
            drop(child.wait());
        }
    }
}
