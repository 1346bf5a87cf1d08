//! Golden scripts of `apply`: commands in; every event, every refusal and the requested state out.
//!
//! `UPDATE_GOLDENFILES=1 cargo test -p muster-harness --test engine apply_scripts::` rewrites the outputs;
//! review them like code.

mod access;
mod health;
mod lifecycle;
mod pipelines;
mod runner;
mod scheduling;
mod show;

use std::collections::BTreeSet;

use runner::Runner;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testscripts/apply");

macro_rules! scripts {
    ($($name:ident),* $(,)?) => {
        const LISTED: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() -> std::io::Result<()> {
                goldenscript::run(
                    &mut Runner::default(),
                    format!("{FOLDER}/{}", stringify!($name)),
                )
            }
        )*
    };
}

scripts! {
    at_once,
    attribution_checkpoint,
    attribution_excuses,
    attribution_gang,
    attribution_gpu,
    attribution_last_seen,
    attribution_old_findings,
    block_and_expiry,
    cancel,
    claims,
    checkpoint_fencing,
    checkpoint_retention,
    checkpoint_damaged,
    dependencies,
    drain,
    exit_rules,
    gang_barrier,
    gang_lifecycle,
    gpu_fault,
    health_admin,
    health_admin_later,
    health_admin_probation,
    health_drain_leaves,
    health_flapping,
    health_gpu,
    health_holds,
    health_host,
    health_incident,
    health_incident_gpus,
    health_incident_silence,
    health_incident_work,
    health_lemon,
    health_power_brake,
    health_refused,
    health_restart,
    health_shipped,
    health_site_check,
    health_unfit_gpu,
    health_wrong_results,
    host_identity,
    host_lost,
    hot_loop,
    join_tokens,
    last_host,
    ledger,
    limits,
    limits_of_queues,
    local_retries,
    lying_worker,
    maintenance_windows,
    member_failure,
    member_swap,
    member_swap_host_lost,
    member_swap_in_cells,
    member_swap_falls_back,
    member_swap_leaving,
    member_swap_rank_0,
    member_swap_refused,
    moves,
    not_charged,
    one_way_link,
    placement_refused,
    partial_gang,
    pipelines,
    progress_guard,
    prune,
    queue_tree,
    queues,
    replicas,
    retries,
    stale_leader,
    start_errors,
    submit_idempotency,
    suspension,
    users,
    victims,
    virtual_cluster,
    who_failed_first,
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test reads its scripts")]
fn every_script_is_run() -> std::io::Result<()> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(FOLDER)? {
        found.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    let listed: BTreeSet<String> = LISTED.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(found, listed);
    Ok(())
}
