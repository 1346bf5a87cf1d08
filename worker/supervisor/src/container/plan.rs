//! Specification of a task's container in the terms of the engines' APIs.

use std::collections::BTreeMap;
use std::path::Path;

use muster_model::spec::{Container, Mount, Ulimit, UlimitKind};
use serde_json::{Map, Value, json};

use crate::container::engine::{RUN_LABEL, WORKER_LABEL};
use crate::container::record::container_name;
use crate::container::rights;
use crate::container::task::Task;
use crate::isolation::cgroup::{CpuQuota, CpuTime};
use crate::task::directory::TaskDirectory;
use crate::task::run_id::RunId;
use crate::task::spec::{EngineAccess, TaskSpec};

/// Target that creates containers in docker's API and in podman's compatible one.
const CREATE: &str = "/containers/create";
/// Target of podman's native API; all later versions understand version 4.0.0.
const CREATE_BY_PODMAN: &str = "/v4.0.0/libpod/containers/create";
/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// A container to be created.
#[derive(Clone, Debug)]
pub(super) struct Plan<'a> {
    pub(super) spec: &'a TaskSpec,
    pub(super) container: &'a Container,
    pub(super) access: &'a EngineAccess,
    /// The engine's id for the image.
    pub(super) image: String,
    /// Complete environment of the task.
    pub(super) environment: BTreeMap<String, String>,
    /// Working directory of the program.
    pub(super) working_directory: String,
    /// Host folders mounted at the same path, which no other user can replace.
    ours: Vec<Mount>,
    /// Other mounts, whose sources the task's account may control.
    pub(super) mounts: Vec<Mount>,
    /// Cgroup to create the container's below, if the engine accepts one.
    pub(super) cgroup_parent: Option<String>,
}

impl<'a> Plan<'a> {
    /// Derives the container from a task's specification.
    pub(super) fn new(
        task: &'a Task,
        directory: &TaskDirectory,
        image: String,
        environment: BTreeMap<String, String>,
    ) -> Self {
        let Task {
            spec,
            container,
            access,
            ..
        } = task;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let scratch = directory.scratch();
        let same = |path: &Path| Mount {
            source: text(path),
            target: text(path),
            read_only: false,
        };
        let ours = [same(&directory.control()), same(&scratch)];
        let secrets = spec
            .secrets
            .target
            .as_deref()
            .filter(|path| path.is_dir())
            .map(|path| Mount {
                read_only: true,
                ..same(path)
            });
        let checkpoints = same(&spec.checkpoint_directory);
        // The folder above may belong to the account too, which creates its own in it.
        let (of_account, of_others) = match spec.owner() {
            Some(_) => (Some(checkpoints), None),
            None => (None, Some(checkpoints)),
        };
        let ours = ours.into_iter().chain(secrets).chain(of_others);
        let asked = container.mounts.iter().cloned();
        let working_directory = spec.assignment.working_directory.clone();
        Self {
            spec,
            container,
            access,
            image,
            environment,
            working_directory: working_directory.unwrap_or_else(|| text(&scratch)),
            ours: ours.collect(),
            mounts: of_account.into_iter().chain(asked).collect(),
            cgroup_parent: None,
        }
    }

    /// The request that creates it: target, container name, and body. Podman's docker-compatible API does not
    /// support CDI devices, so a container with GPUs uses the native API.
    pub(super) fn request(&self, is_podman: bool) -> (String, String, Value) {
        let name = container_name(RunId::of(&self.spec.assignment));
        let (target, body) = match is_podman && !self.devices().is_empty() {
            true => (CREATE_BY_PODMAN.to_owned(), self.for_podman(&name)),
            false => (format!("{CREATE}?name={name}"), self.for_docker()),
        };
        (target, name, body)
    }

    fn all_mounts(&self) -> impl Iterator<Item = &Mount> {
        self.ours.iter().chain(&self.mounts)
    }

    /// CDI names of the task's GPUs.
    fn devices(&self) -> Vec<String> {
        let gpus = self
            .spec
            .assignment
            .gpus
            .iter()
            .filter(|_| self.access.has_real_gpus);
        gpus.map(|gpu| self.container.gpu_device(gpu)).collect()
    }

    fn labels(&self) -> Value {
        let assignment = &self.spec.assignment;
        json!({
            WORKER_LABEL: self.access.worker,
            RUN_LABEL: RunId::of(assignment).to_string(),
            "muster.job": assignment.key.job.to_string(),
            "muster.task": assignment.key.task.to_string(),
            "muster.epoch": assignment.epoch.to_string(),
        })
    }

    fn memory_bytes(&self) -> u64 {
        self.spec.assignment.memory_mib.saturating_mul(MIB)
    }

    fn cpu_time(&self) -> Option<CpuTime> {
        let confinement = &self.spec.confinement;
        CpuTime::of(self.spec.assignment.cpus_milli, confinement.cpu_quota)
    }

    fn pids_max(&self) -> i64 {
        let pids_max = self.spec.assignment.execution.pids_max;
        pids_max.map_or(-1, i64::from)
    }

    fn ulimits(&self, entry: impl Fn(&UlimitKind, i64, i64) -> Value) -> Vec<Value> {
        let amount = |amount: Option<u64>| {
            amount.map_or(-1, |amount| i64::try_from(amount).unwrap_or(i64::MAX))
        };
        let limits = self.spec.assignment.execution.ulimits.iter();
        limits
            .map(|(kind, Ulimit { soft, hard })| entry(kind, amount(*soft), amount(*hard)))
            .collect()
    }

    /// Body for docker's API and podman's compatible one.
    fn for_docker(&self) -> Value {
        let container = self.container;
        let variables = self
            .environment
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let mounts = self.all_mounts().map(|mount| {
            json!({
                "Type": "bind", "Source": mount.source, "Target": mount.target,
                "ReadOnly": mount.read_only,
            })
        });
        let mut host = json!({
            "NetworkMode": "host",
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "none"},
            "SecurityOpt": self.security_options(),
            "Mounts": mounts.collect::<Vec<_>>(),
            "PidsLimit": self.pids_max(),
            // Set here and not only by a cgroup around the container: with the systemd driver there is none.
            // The limit of memory plus swap equals that of memory, so swap does not extend it. 0 means
            // unlimited for both.
            "Memory": self.memory_bytes(),
            "MemorySwap": self.memory_bytes(),
            "Init": container.init,
            "Ulimits": self.ulimits(|kind, soft, hard| {
                json!({"Name": kind.name(), "Soft": soft, "Hard": hard})
            }),
        });
        let devices = self.devices();
        let requests =
            (!devices.is_empty()).then(|| json!([{"Driver": "cdi", "DeviceIDs": devices}]));
        put(&mut host, "DeviceRequests", requests);
        let place = self.spec.confinement.cpus.as_ref();
        put(
            &mut host,
            "CpusetCpus",
            place.map(|place| list(&place.cpus)),
        );
        let nodes = place.filter(|place| !place.nodes.is_empty());
        put(
            &mut host,
            "CpusetMems",
            nodes.map(|place| list(&place.nodes)),
        );
        let time = self.cpu_time();
        put(&mut host, "CpuShares", time.map(|time| time.shares));
        if let Some(CpuQuota { micros, period }) = time.and_then(|time| time.quota) {
            put(&mut host, "CpuQuota", Some(micros));
            put(&mut host, "CpuPeriod", Some(period));
        }
        put(&mut host, "CgroupParent", self.cgroup_parent.clone());
        put(&mut host, "GroupAdd", self.groups());
        put(&mut host, "UsernsMode", container.userns.clone());
        put(&mut host, "ShmSize", container.shm_mib.map(|mib| mib * MIB));
        let mut body = json!({
            "Image": self.image,
            "Env": variables.collect::<Vec<_>>(),
            "WorkingDir": self.working_directory,
            "Labels": self.labels(),
            "AttachStdin": false,
            "AttachStdout": true,
            "AttachStderr": true,
            "OpenStdin": false,
            "Tty": false,
            "HostConfig": host,
        });
        put(&mut body, "Cmd", given(&self.spec.assignment.command));
        put(&mut body, "Entrypoint", given(&container.entrypoint));
        put(&mut body, "User", self.user());
        body
    }

    /// User of its processes; the image's if `None`.
    fn user(&self) -> Option<String> {
        let account = rights::whose(self.container, &self.spec.identity)
            .map(|(account, group)| format!("{}:{group}", account.uid));
        account.or_else(|| self.container.user.clone())
    }

    /// Supplementary groups of that user.
    fn groups(&self) -> Option<Vec<String>> {
        let (account, first) = rights::whose(self.container, &self.spec.identity)?;
        let further = account.groups.iter().filter(|group| **group != first);
        Some(further.map(ToString::to_string).collect())
    }

    /// Where tasks have an account, no setuid program of the image gains more rights.
    const fn gains_no_rights(&self) -> bool {
        self.spec.identity.account.is_some()
    }

    fn security_options(&self) -> Vec<&'static str> {
        let gains_none = self.gains_no_rights().then_some("no-new-privileges");
        ["label=disable"].into_iter().chain(gains_none).collect()
    }

    /// Body for podman's native API.
    fn for_podman(&self, name: &str) -> Value {
        let container = self.container;
        let mounts = self.all_mounts().map(|mount| {
            let access = if mount.read_only { "ro" } else { "rw" };
            json!({
                "type": "bind", "source": mount.source, "destination": mount.target,
                "options": ["rbind", access],
            })
        });
        let devices = self.devices().into_iter();
        let mut body = json!({
            "name": name,
            "image": self.image,
            "env": self.environment,
            "work_dir": self.working_directory,
            "labels": self.labels(),
            "netns": {"nsmode": "host"},
            "log_configuration": {"driver": "none"},
            "selinux_opts": ["disable"],
            "mounts": mounts.collect::<Vec<_>>(),
            "devices": devices.map(|path| json!({"path": path})).collect::<Vec<_>>(),
            "init": container.init,
            "r_limits": self.ulimits(|kind, soft, hard| {
                json!({"type": kind.name(), "soft": soft, "hard": hard})
            }),
        });
        let mut limits = json!({"pids": {"limit": self.pids_max()}});
        let memory_bytes = self.memory_bytes();
        let memory =
            (memory_bytes > 0).then(|| json!({"limit": memory_bytes, "swap": memory_bytes}));
        put(&mut limits, "memory", memory);
        let mut cpu = json!({});
        if let Some(place) = &self.spec.confinement.cpus {
            put(&mut cpu, "cpus", Some(list(&place.cpus)));
            put(&mut cpu, "mems", Some(list(&place.nodes)));
        }
        let time = self.cpu_time();
        put(&mut cpu, "shares", time.map(|time| time.shares));
        if let Some(CpuQuota { micros, period }) = time.and_then(|time| time.quota) {
            put(&mut cpu, "quota", Some(micros));
            put(&mut cpu, "period", Some(period));
        }
        put(&mut limits, "cpu", Some(cpu));
        put(&mut body, "resource_limits", Some(limits));
        put(&mut body, "cgroup_parent", self.cgroup_parent.clone());
        put(
            &mut body,
            "userns",
            container.userns.as_deref().map(user_namespace),
        );
        put(
            &mut body,
            "shm_size",
            container.shm_mib.map(|mib| mib * MIB),
        );
        put(&mut body, "command", given(&self.spec.assignment.command));
        put(&mut body, "entrypoint", given(&container.entrypoint));
        put(&mut body, "user", self.user());
        put(&mut body, "groups", self.groups());
        let gains_none = self.gains_no_rights().then_some(true);
        put(&mut body, "no_new_privileges", gains_none);
        body
    }
}

/// Adds a field unless it is absent: engines use their default then.
fn put(body: &mut Value, name: &str, value: Option<impl Into<Value>>) {
    let fields: Option<&mut Map<String, Value>> = body.as_object_mut();
    if let (Some(fields), Some(value)) = (fields, value) {
        fields.insert(name.to_owned(), value.into());
    }
}

/// Formats numbers as the kernel lists them.
fn list(numbers: &[u32]) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    numbers.join(",")
}

fn given(list: &[String]) -> Option<Value> {
    (!list.is_empty()).then(|| json!(list))
}

/// `mode` or `mode:value`, in the format of podman's native API.
fn user_namespace(text: &str) -> Value {
    match text.split_once(':') {
        Some((mode, value)) => json!({"nsmode": mode, "value": value}),
        None => json!({"nsmode": text}),
    }
}
