//! Containers of tasks that run as an account: they reach nothing on the host that the account could not
//! access itself, whatever it changes while they are created.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use muster_model::spec::Mount;
use muster_supervisor::Account;

use crate::containers::{access, contained, container};
use crate::fake_engine::{FakeEngine, json, ordinary};
use crate::support::{FILES_MAX, LONG_LEASE_MS, Rig, skipped};

/// The account of these tasks; `None` where the tests cannot run.
fn nobody() -> Option<Account> {
    match rustix::process::geteuid().is_root() {
        true => Account::find("nobody").unwrap(),
        false => skipped("only root gives folders to others"),
    }
}

#[test]
fn files_that_replace_an_accounts_folders_keep_their_owner() {
    let Some(nobody) = nobody() else {
        return;
    };
    // The account's own id, and another one where the host allows that.
    for user in [nobody.uid, 4_001] {
        let home = tempfile::tempdir().unwrap();
        let victim = home.path().join("victim");
        fs::write(&victim, "").unwrap();
        let socket: Arc<OnceLock<PathBuf>> = Arc::default();
        let (place, target) = (Arc::clone(&socket), victim.clone());
        let engine = FakeEngine::start(move |request, stream| match request {
            // The answer is delayed by whatever the account does meanwhile.
            "GET /_ping" => {
                let place = place.get().unwrap();
                drop(fs::remove_file(place));
                symlink(&target, place).unwrap();
                ordinary(request, stream);
            }
            request if request.starts_with("POST") => {
                json(stream, 500, r#"{"message": "that is all"}"#);
            }
            request => ordinary(request, stream),
        });
        let mut task = contained("true");
        container(&mut task).user = Some(user.to_string());
        let mut rig = Rig::start_prepared(task, LONG_LEASE_MS, FILES_MAX, |spec, directory| {
            socket.set(directory.control_socket()).unwrap();
            spec.engine = Some(access(&engine.socket()));
            spec.identity.account = Some(nobody.clone());
            spec.identity.any_container_user = true;
        });
        let error = rig.receive_exit().start_error.unwrap();
        assert!(error.contains("that is all"), "{error}");
        let link = fs::symlink_metadata(rig.directory.control_socket()).unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::metadata(&victim).unwrap().uid(), 0);
    }
}

/// A task of an account in a container that mounts a folder of the host, and its engine, which runs
/// `meanwhile` while it creates the container.
fn start_with_mount(
    account: &Account,
    source: &Path,
    meanwhile: impl Fn() + Send + Sync + 'static,
) -> (Rig, FakeEngine) {
    let engine = FakeEngine::start(move |request, stream| match request {
        request if request.starts_with("POST /containers/create") => {
            meanwhile();
            json(stream, 201, r#"{"Id": "c1"}"#);
        }
        request if request.starts_with("POST /containers/c1/attach") => {
            drop(stream.write_all(b"HTTP/1.1 101 UPGRADED\r\n\r\n"));
        }
        "POST /containers/c1/start" => json(stream, 204, ""),
        "POST /containers/c1/wait" => json(stream, 200, r#"{"StatusCode": 0}"#),
        request => ordinary(request, stream),
    });
    let mut task = contained("true");
    container(&mut task).mounts = vec![Mount {
        source: source.display().to_string(),
        target: "/data".to_owned(),
        read_only: false,
    }];
    let rig = Rig::start_spec(task, LONG_LEASE_MS, |spec| {
        spec.engine = Some(access(&engine.socket()));
        spec.identity.account = Some(account.clone());
    });
    (rig, engine)
}

#[test]
fn an_engine_receives_mount_paths_without_symbolic_links() {
    let Some(nobody) = nobody() else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let home = home.path().canonicalize().unwrap();
    let (folder, link) = (home.join("folder"), home.join("link"));
    fs::create_dir(&folder).unwrap();
    symlink(&folder, &link).unwrap();
    let (mut rig, engine) = start_with_mount(&nobody, &link, || {});
    let exit = rig.receive_exit();
    assert_eq!((exit.code, exit.start_error), (Some(0), None));
    let body = engine.body_of("POST /containers/create");
    let mounts = body["HostConfig"]["Mounts"].as_array().unwrap();
    let mount = mounts.iter().find(|it| it["Target"] == "/data").unwrap();
    assert_eq!(mount["Source"], folder.display().to_string());
}

#[test]
fn a_container_whose_mount_was_replaced_during_creation_is_not_started() {
    let Some(nobody) = nobody() else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let (folder, closed) = (home.path().join("folder"), home.path().join("closed"));
    for (place, mode) in [(&folder, 0o755), (&closed, 0o700)] {
        fs::create_dir(place).unwrap();
        fs::set_permissions(place, Permissions::from_mode(mode)).unwrap();
    }
    let place = folder.clone();
    let (mut rig, engine) = start_with_mount(&nobody, &folder, move || {
        fs::remove_dir(&place).unwrap();
        symlink(&closed, &place).unwrap();
    });
    let error = rig.receive_exit().start_error.unwrap();
    assert!(error.starts_with("CONTAINER_MOUNT_CHANGED: "), "{error}");
    assert!(error.contains(&folder.display().to_string()), "{error}");
    assert!(engine.was_requested("POST /containers/create"));
    assert!(!engine.was_requested("POST /containers/c1/start"));
}
