//! Tests of the agent's use of its host's container engine.

use std::path::Path;

use muster_model::heartbeat::WorkerTaskPhase;
use muster_model::host::ENGINE_LABEL;
use muster_model::spec::Container;
use muster_worker::{ContainerEngineConfig, WorkerConfig};

use crate::agent::Host;
use crate::fake_engine::{FakeEngine, json, ordinary};
use crate::support::leader::Leader;
use crate::support::{eventually, script};

fn with(engine: &FakeEngine) -> impl FnOnce(&mut WorkerConfig, &Path) {
    let socket = engine.socket();
    |config, _| config.container_engine = ContainerEngineConfig::Socket(socket)
}

/// An engine with a container of an unknown attempt.
fn engine() -> FakeEngine {
    FakeEngine::start(|request, stream| match request {
        request if request.starts_with("GET /containers/json") => {
            let listed = r#"[{"Id": "c9", "Labels": {"muster.run": "9-0-1"}}]"#;
            json(stream, 200, listed);
        }
        request if request.starts_with("DELETE /containers/c9") => json(stream, 204, ""),
        request if request.starts_with("POST /containers/create") => {
            json(stream, 400, r#"{"message": "not today"}"#);
        }
        request => ordinary(request, stream),
    })
}

#[tokio::test]
async fn a_host_registers_its_engine_and_removes_containers_of_dead_tasks() {
    let leader = Leader::start(5).await;
    let engine = engine();
    let _host = Host::start_with(&[&leader], with(&engine));
    let hello = leader.eventually("hello", |inner| inner.hellos.first().cloned());
    let labels = hello.await.registration.unwrap().labels;
    assert_eq!(
        labels.get(ENGINE_LABEL).map(String::as_str),
        Some("docker 1.0")
    );
    eventually("its removal", || {
        engine.was_requested("DELETE /containers/c9")
    });
}

#[tokio::test]
async fn a_host_without_an_engine_registers_none() {
    let leader = Leader::start(5).await;
    let _host = Host::start_with(&[&leader], |config, _| {
        config.container_engine = ContainerEngineConfig::None;
    });
    let hello = leader.eventually("hello", |inner| inner.hellos.first().cloned());
    let labels = hello.await.registration.unwrap().labels;
    assert_eq!(labels.get(ENGINE_LABEL), None);
}

#[tokio::test]
async fn a_container_that_its_engine_refuses_is_reported_with_the_reason() {
    let leader = Leader::start(5).await;
    let engine = engine();
    let _host = Host::start_with(&[&leader], with(&engine));
    let mut task = script("true");
    task.execution.container = Some(Container {
        image: "train:1".to_owned(),
        ..Container::default()
    });
    leader.want([task]);
    let error = leader
        .eventually_task("its end", |status| match &status.phase {
            WorkerTaskPhase::Exited(exit) => exit.start_error.clone(),
            _ => None,
        })
        .await;
    assert!(error.contains("not today"), "{error}");
}
