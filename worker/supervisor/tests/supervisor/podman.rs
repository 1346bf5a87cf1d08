//! A real engine for tests: podman's service, with all of its data in a folder of the test.
//! Where podman is not installed, or cannot run containers, tests that need it print that and pass.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// How long the service may take to listen: it opens its storage first.
const SERVE_MAX: Duration = Duration::from_secs(30);
/// Pause between two checks of it.
const POLL: Duration = Duration::from_millis(20);

/// The image of all tests: busybox and nothing else.
pub(crate) const IMAGE: &str = "localhost/muster-test:1";
/// Programs of busybox that tests use.
const PROGRAMS: [&str; 14] = [
    "sh", "env", "sleep", "cat", "dd", "echo", "id", "df", "kill", "touch", "stty", "pwd", "ls",
    "tr",
];

/// Whether podman can run containers here; the same for all tests.
static PROBED: OnceLock<Result<(), String>> = OnceLock::new();

/// A running service of podman.
pub(crate) struct Podman {
    home: PathBuf,
    service: Option<Child>,
}

impl Podman {
    /// Starts a service, or prints why there is none.
    pub(crate) fn start() -> Option<Self> {
        match Self::try_start() {
            Ok(podman) => Some(podman),
            Err(why) => {
                // The test's own output, which the harness shows.
                drop(writeln!(
                    std::io::stderr(),
                    "skipped: no podman here: {why}"
                ));
                None
            }
        }
    }

    fn try_start() -> Result<Self, String> {
        let busybox = find("busybox").ok_or("busybox is not installed")?;
        find("podman").ok_or("podman is not installed")?;
        let runtime = ["runc", "crun"]
            .iter()
            .find_map(|name| find(name))
            .ok_or("neither runc nor crun is installed")?;
        // On a short path: socket paths are limited to 107 bytes.
        let home = tempfile::Builder::new()
            .prefix("mp")
            .tempdir_in("/tmp")
            .map_err(|error| error.to_string())?
            .keep();
        let mut podman = Self {
            home,
            service: None,
        };
        let configuration = format!(
            "[engine]\nruntime = \"{}\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n",
            runtime.display()
        );
        let write = |name: &str, text: &str| {
            std::fs::write(podman.home.join(name), text).map_err(|error| error.to_string())
        };
        write("containers.conf", &configuration)?;
        podman.import(&busybox)?;
        PROBED.get_or_init(|| podman.probe()).clone()?;
        podman.serve()?;
        Ok(podman)
    }

    /// Path of its socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.home.join("podman.sock")
    }

    /// Starts to serve.
    pub(crate) fn serve(&mut self) -> Result<(), String> {
        let mut command = self.command();
        command
            .args(["system", "service", "--time=0"])
            .arg(format!("unix://{}", self.socket().display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.service = Some(command.spawn().map_err(|error| error.to_string())?);
        let looks = SERVE_MAX.as_millis() / POLL.as_millis();
        for _ in 0..looks {
            if UnixStream::connect(self.socket()).is_ok() {
                return Ok(());
            }
            std::thread::park_timeout(POLL);
        }
        Err("podman's service does not listen".to_owned())
    }

    /// Stops the service. Its containers continue.
    pub(crate) fn stop_serving(&mut self) {
        if let Some(mut service) = self.service.take() {
            service.kill().unwrap();
            service.wait().unwrap();
        }
        drop(std::fs::remove_file(self.socket()));
    }

    /// The names of its containers.
    pub(crate) fn containers(&self) -> Vec<String> {
        let listed = self
            .run(&["ps", "--all", "--format", "{{.Names}}"])
            .unwrap();
        listed.lines().map(ToOwned::to_owned).collect()
    }

    /// Runs one command of podman.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self
            .command()
            .args(arguments)
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(format!("podman {}: {}", arguments.join(" "), errors.trim()))
    }

    fn command(&self) -> Command {
        let mut command = Command::new("podman");
        command
            .arg("--root")
            .arg(self.home.join("root"))
            .arg("--runroot")
            .arg(self.home.join("run"))
            .args(["--storage-driver", "vfs"])
            .env("CONTAINERS_CONF", self.home.join("containers.conf"))
            .env("XDG_RUNTIME_DIR", &self.home)
            // The process that monitors a container writes into the working directory.
            .current_dir(&self.home)
            .stdin(Stdio::null());
        command
    }

    /// Runs a container as plainly as podman can: if that fails, Muster is not the cause.
    fn probe(&self) -> Result<(), String> {
        let arguments = [
            "run",
            "--rm",
            "--network=host",
            "--log-driver=none",
            "--ulimit=nofile=1024:4096",
            "--ulimit=nproc=1024:4096",
            IMAGE,
            "sh",
            "-c",
            "exit 0",
        ];
        self.run(&arguments).map(|_| ())
    }

    /// Creates an image from a tree with busybox in it.
    fn import(&self, busybox: &Path) -> Result<(), String> {
        let tree = self.home.join("tree");
        let text = |error: std::io::Error| error.to_string();
        for folder in ["bin", "tmp", "dev", "proc", "etc"] {
            std::fs::create_dir_all(tree.join(folder)).map_err(text)?;
        }
        std::fs::copy(busybox, tree.join("bin/busybox")).map_err(text)?;
        for program in PROGRAMS {
            let link = tree.join("bin").join(program);
            std::os::unix::fs::symlink("busybox", link).map_err(text)?;
        }
        let archive = self.home.join("tree.tar");
        let mut pack = Command::new("tar");
        pack.arg("-C").arg(&tree).arg("-cf").arg(&archive).arg(".");
        let packed = pack.status().map_err(text)?;
        if !packed.success() {
            return Err("packing the image failed".to_owned());
        }
        self.run(&["import", &archive.display().to_string(), IMAGE])
            .map(|_| ())
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        drop(self.run(&["rm", "--all", "--force", "--time=0"]));
        self.stop_serving();
        drop(std::fs::remove_dir_all(&self.home));
    }
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}
