//! Request bodies that create a container, in docker's API and in podman's native one.

use std::path::{Path, PathBuf};

use muster_model::desired::TaskAssignment;
use muster_model::ids::GpuUuid;
use muster_model::spec::{Secret, SecretForm};
use muster_supervisor::{Account, AssignedCpus, TaskSpec};
use serde_json::{Value, json};

use crate::containers::{access, contained, container};
use crate::fake_engine::{FakeEngine, greet, json as answer, ordinary};
use crate::support::{LONG_LEASE_MS, Rig, skipped};

/// The GPU of these tasks.
const GPU: GpuUuid = GpuUuid(0x1234);
/// A directory on every host that is a file system in memory.
const MEMORY: &str = "/dev/shm";

/// An API that can create containers: the engine's identification, and its request target.
struct Api {
    header: &'static str,
    target: &'static str,
}

const DOCKER: Api = Api {
    header: "Server: Docker/1.0 (test)",
    target: "/containers/create",
};
const PODMAN: Api = Api {
    header: "Libpod-Api-Version: 4.3.1",
    target: "/v4.0.0/libpod/containers/create",
};

impl Api {
    /// The request body for a task's container, which the fake engine refuses to create.
    fn body(&self, mut task: TaskAssignment, change: impl FnOnce(&mut TaskSpec)) -> Value {
        let header = self.header;
        let engine = FakeEngine::start(move |request, stream| match request {
            "GET /_ping" => greet(stream, header),
            request if request.starts_with("POST") => {
                answer(stream, 500, r#"{"message": "that is all"}"#);
            }
            request => ordinary(request, stream),
        });
        task.gpus = vec![GPU];
        let mut rig = Rig::start_spec(task, LONG_LEASE_MS, |spec| {
            spec.engine = Some(access(&engine.socket()));
            change(spec);
        });
        let error = rig.receive_exit().start_error.unwrap();
        assert!(error.contains("that is all"), "{error}");
        engine.body_of(&format!("POST {}", self.target))
    }
}

#[test]
fn an_engine_receives_the_limits_of_a_container() {
    let body = |api: &Api, cpu_quota| {
        let mut task = contained("true");
        (task.memory_mib, task.cpus_milli) = (64, 1_500);
        api.body(task, |spec| spec.confinement.cpu_quota = cpu_quota)
    };
    let docker = |cpu_quota| {
        let body = body(&DOCKER, cpu_quota);
        ["Memory", "MemorySwap", "CpuShares", "CpuQuota", "CpuPeriod"]
            .map(|name| body["HostConfig"][name].as_u64())
    };
    let podman = |cpu_quota| {
        let body = body(&PODMAN, cpu_quota);
        [
            "memory/limit",
            "memory/swap",
            "cpu/shares",
            "cpu/quota",
            "cpu/period",
        ]
        .map(|name| body.pointer(&format!("/resource_limits/{name}"))?.as_u64())
    };
    // Memory plus swap equals the memory limit.
    let held: [Option<u64>; 5] = [64 << 20, 64 << 20, 1_536, 150_000, 100_000].map(Some);
    let mut weighed = held;
    weighed[3..].fill(None);
    assert_eq!((docker(true), podman(true)), (held, held));
    assert_eq!((docker(false), podman(false)), (weighed, weighed));
}

/// A task with every setting and a secret; returns the request body for an API.
fn body_of_all(api: &Api, source: &Path, target: &Path) -> Value {
    let mut task = contained("true");
    task.execution.pids_max = Some(77);
    task.execution.secrets = vec![Secret {
        name: "key".to_owned(),
        form: SecretForm::File("KEY_FILE".to_owned()),
    }];
    let asked = container(&mut task);
    asked.userns = Some("keep-id:uid=7".to_owned());
    asked.user = Some("7:8".to_owned());
    asked.shm_mib = Some(8);
    asked.init = true;
    api.body(task, |spec| {
        spec.confinement.cpus = Some(AssignedCpus {
            cpus: vec![0],
            nodes: vec![0],
        });
        spec.secrets.source = Some(source.to_owned());
        spec.secrets.target = Some(target.to_owned());
    })
}

#[test]
fn an_engine_receives_the_working_directory_and_user_of_a_container() {
    let source = tempfile::tempdir().unwrap();
    std::fs::write(source.path().join("key"), "s3cret-key\n").unwrap();
    let target = PathBuf::from(MEMORY).join(format!("muster-test-bodies-{}", std::process::id()));
    let folder = target.display().to_string();
    let device = container(&mut contained("true")).gpu_device(&GPU);

    let body = body_of_all(&DOCKER, source.path(), &target);
    let host = &body["HostConfig"];
    assert_eq!(
        host["DeviceRequests"],
        json!([{"Driver": "cdi", "DeviceIDs": [device]}])
    );
    let sent = [
        "CpusetCpus",
        "CpusetMems",
        "PidsLimit",
        "UsernsMode",
        "Init",
        "ShmSize",
    ];
    assert_eq!(
        sent.map(|name| &host[name]),
        [
            &json!("0"),
            &json!("0"),
            &json!(77),
            &json!("keep-id:uid=7"),
            &json!(true),
            &json!(8 << 20),
        ]
    );
    assert_eq!(body["User"], "7:8");
    let secret = json!({"Type": "bind", "Source": folder, "Target": folder, "ReadOnly": true});
    assert!(
        host["Mounts"].as_array().unwrap().contains(&secret),
        "{host}"
    );
    let variable = json!(format!("KEY_FILE={folder}/key"));
    assert!(
        body["Env"].as_array().unwrap().contains(&variable),
        "{body}"
    );

    let body = body_of_all(&PODMAN, source.path(), &target);
    let limits = &body["resource_limits"];
    assert_eq!(body["devices"], json!([{"path": device}]));
    assert_eq!(
        (
            &limits["cpu"]["cpus"],
            &limits["cpu"]["mems"],
            &limits["pids"]["limit"]
        ),
        (&json!("0"), &json!("0"), &json!(77))
    );
    assert_eq!(
        body["userns"],
        json!({"nsmode": "keep-id", "value": "uid=7"})
    );
    assert_eq!(
        (&body["init"], &body["shm_size"], &body["user"]),
        (&json!(true), &json!(8 << 20), &json!("7:8"))
    );
    let secret = json!({
        "type": "bind", "source": folder, "destination": folder, "options": ["rbind", "ro"],
    });
    assert!(
        body["mounts"].as_array().unwrap().contains(&secret),
        "{body}"
    );
    assert_eq!(body["env"]["KEY_FILE"], format!("{folder}/key"));
    assert!(!body.to_string().contains("s3cret") && !target.exists());
}

#[test]
fn a_containers_processes_are_the_account_of_their_task() {
    if !rustix::process::geteuid().is_root() {
        return skipped("only root gives folders to others").unwrap_or_default();
    }
    let account = Account {
        name: "ada".to_owned(),
        uid: 4_001,
        gid: 4_002,
        groups: vec![4_002, 4_003],
        home: "/home/ada".into(),
        shell: "/bin/sh".into(),
    };
    let body = |api: &Api, user: Option<&str>| {
        let account = account.clone();
        let mut task = contained("true");
        container(&mut task).user = user.map(ToOwned::to_owned);
        api.body(task, |spec| spec.identity.account = Some(account))
    };
    // The account's own id changes nothing: the image would decide the group.
    for user in [None, Some("4001")] {
        let docker = body(&DOCKER, user);
        let host = &docker["HostConfig"];
        assert_eq!(docker["User"], "4001:4002");
        assert_eq!(host["GroupAdd"], json!(["4003"]));
        assert_eq!(
            host["SecurityOpt"],
            json!(["label=disable", "no-new-privileges"])
        );
        let podman = body(&PODMAN, user);
        assert_eq!(podman["user"], "4001:4002");
        assert_eq!(podman["groups"], json!(["4003"]));
        assert_eq!(podman["no_new_privileges"], true);
    }
    let podman = body(&PODMAN, Some("4001:4003"));
    assert_eq!(podman["user"], "4001:4003");
    assert_eq!(podman["groups"], json!(["4002"]));
}

#[test]
fn a_container_that_may_become_root_is_refused_to_an_account() {
    if !rustix::process::geteuid().is_root() {
        return skipped("only root gives folders to others").unwrap_or_default();
    }
    let engine = FakeEngine::start(ordinary);
    let mut task = contained("true");
    container(&mut task).user = Some("0".to_owned());
    let mut rig = Rig::start_spec(task, LONG_LEASE_MS, |spec| {
        spec.engine = Some(access(&engine.socket()));
        spec.identity.account = Account::find("nobody").unwrap();
    });
    let error = rig.receive_exit().start_error.unwrap();
    assert!(error.starts_with("CONTAINER_USER_REFUSED"), "{error}");
}
