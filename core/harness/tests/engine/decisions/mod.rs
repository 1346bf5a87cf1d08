//! Tests of the core's decisions: golden scripts (`testscripts/`), properties over random states, and bounds
//! on time.
//!
//! `UPDATE_GOLDENFILES=1 cargo test -p muster-harness --test engine decisions::` rewrites the outputs of the
//! scripts.

mod agent;
mod cluster;
mod plan;
mod properties;
mod random_scripts;
mod reactor;

use std::path::Path;

/// Runs every script of a folder of `testscripts`, each with its own runner.
#[expect(clippy::disallowed_methods, reason = "a test reads its scripts")]
fn run_scripts<R: goldenscript::Runner>(folder: &str, new_runner: impl Fn() -> R) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testscripts")
        .join(folder);
    let mut scripts: Vec<_> = std::fs::read_dir(&folder)
        .expect("the folder of scripts is part of the sources")
        .map(|entry| entry.expect("its entries are readable").path())
        .collect();
    scripts.sort();
    assert!(!scripts.is_empty(), "no script in {}", folder.display());
    for script in scripts {
        let run = goldenscript::run(&mut new_runner(), &script);
        run.unwrap_or_else(|error| panic!("{}: {error}", script.display()));
    }
}

#[test]
fn plan_scripts() {
    run_scripts("plan", plan::PlanRunner::default);
}

#[test]
fn gang_scripts() {
    run_scripts("gang", plan::PlanRunner::default);
}

#[test]
fn queue_scripts() {
    run_scripts("queues", plan::PlanRunner::default);
}

#[test]
fn claim_scripts() {
    run_scripts("claims", plan::PlanRunner::default);
}

#[test]
fn reactor_scripts() {
    run_scripts("reactor", reactor::ReactorRunner::default);
}

#[test]
fn agent_scripts() {
    run_scripts("agent", agent::AgentRunner::default);
}
