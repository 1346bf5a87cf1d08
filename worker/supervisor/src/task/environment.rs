//! The environment of a task: the contract with users' programs.

use std::collections::BTreeMap;
use std::ffi::OsString;

use muster_model::desired::{RestartReason, TaskAssignment};

use crate::isolation::account::Account;
use crate::process::CONTROL_VARIABLE;
use crate::task::directory::TaskDirectory;
use crate::task::secrets::Secrets;
use crate::task::spec::TaskSpec;
use crate::task::stopping::terminate_lead_ms;

/// Variables that a process inherits from its worker or gets from its account; a user's variable of the same
/// name wins. A container has its image's.
const INHERITED: [&str; 7] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "TZ",
    "LD_LIBRARY_PATH",
];

/// Seconds by which torchrun's kill timeout must be shorter than the task's grace.
const TORCH_MARGIN_SECONDS: u64 = 5;

/// Returns the complete environment of a task. Muster's own variables override the user's: fencing depends on
/// them.
pub(crate) fn of_task(
    spec: &TaskSpec,
    directory: &TaskDirectory,
    secrets: &Secrets,
) -> BTreeMap<OsString, OsString> {
    let is_process = spec.assignment.execution.container.is_none();
    let inherited = INHERITED
        .iter()
        .filter(|_| is_process)
        .filter_map(|name| std::env::var_os(name).map(|value| (OsString::from(name), value)));
    let account = spec.identity.account.as_ref().filter(|_| is_process);
    let accounts = account.map(of_account).into_iter().flatten();
    let users = spec
        .assignment
        .environment
        .iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let paths = paths(spec, directory).map(|(name, value)| (OsString::from(name), value));
    let ours = identity(&spec.assignment)
        .into_iter()
        .chain(frameworks(&spec.assignment))
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let hostfile = (!spec.assignment.gang_hosts.is_empty()).then(|| {
        let path = directory.hostfile().into_os_string();
        (OsString::from("MUSTER_HOSTFILE"), path)
    });
    let ours = ours.chain(hostfile);
    let theirs = inherited
        .chain(accounts)
        .chain(users)
        .chain(secrets.variables());
    theirs.chain(paths).chain(ours).collect()
}

/// Variables that a login of an account sets.
fn of_account(account: &Account) -> [(OsString, OsString); 4] {
    let Account {
        name, home, shell, ..
    } = account;
    [
        ("HOME", home.into()),
        ("USER", name.into()),
        ("LOGNAME", name.into()),
        ("SHELL", shell.into()),
    ]
    .map(|(name, value): (&str, OsString)| (name.into(), value))
}

fn paths(spec: &TaskSpec, directory: &TaskDirectory) -> [(&'static str, OsString); 4] {
    let control = directory.control();
    [
        (
            "MUSTER_CKPT_DIR",
            spec.checkpoint_directory.clone().into_os_string(),
        ),
        (
            "MUSTER_CTL_SOCK",
            directory.control_socket().into_os_string(),
        ),
        (
            "TORCHELASTIC_ERROR_FILE",
            directory.error_file().into_os_string(),
        ),
        (CONTROL_VARIABLE, control.into_os_string()),
    ]
}

fn identity(assignment: &TaskAssignment) -> Vec<(&'static str, String)> {
    let (step, latest) = match &assignment.checkpoint {
        Some(checkpoint) => (checkpoint.step, checkpoint.path.clone()),
        None => (0, String::new()),
    };
    let advice = assignment.checkpoint_duties.interval_ms.map(|interval_ms| {
        let seconds = interval_ms.div_ceil(1_000).to_string();
        ("MUSTER_CKPT_INTERVAL_ADVICE", seconds)
    });
    let identity = [
        ("MUSTER_JOB_ID", assignment.key.job.to_string()),
        ("MUSTER_TASK_INDEX", assignment.key.task.to_string()),
        ("MUSTER_ATTEMPT", assignment.attempt.to_string()),
        ("MUSTER_EPOCH", assignment.epoch.to_string()),
        (
            "MUSTER_RESTART_REASON",
            restart_reason(assignment.restart_reason).to_owned(),
        ),
        ("MUSTER_CKPT_LATEST", latest),
        ("MUSTER_CKPT_STEP", step.to_string()),
        (
            "MUSTER_GRACE_SECONDS",
            assignment.stop_grace_ms.div_ceil(1_000).to_string(),
        ),
    ];
    identity.into_iter().chain(advice).collect()
}

fn frameworks(assignment: &TaskAssignment) -> Vec<(&'static str, String)> {
    let rank = &assignment.rank;
    let gpus = assignment
        .gpus
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(",");
    let grace_seconds = after_sigterm_ms(assignment) / 1_000;
    vec![
        ("RANK", rank.rank.to_string()),
        ("WORLD_SIZE", rank.world_size.to_string()),
        ("LOCAL_RANK", rank.local_rank.to_string()),
        ("NODE_RANK", rank.node_rank.to_string()),
        ("MASTER_ADDR", rank.master_address.clone()),
        ("MASTER_PORT", rank.master_port.to_string()),
        // `void` tells the container runtime "no GPU"; the empty list tells CUDA.
        (
            "NVIDIA_VISIBLE_DEVICES",
            if gpus.is_empty() {
                "void".to_owned()
            } else {
                gpus.clone()
            },
        ),
        ("CUDA_VISIBLE_DEVICES", gpus),
        (
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
            grace_seconds
                .saturating_sub(TORCH_MARGIN_SECONDS)
                .max(1)
                .to_string(),
        ),
    ]
}

/// Milliseconds between SIGTERM and SIGKILL.
fn after_sigterm_ms(assignment: &TaskAssignment) -> u64 {
    match assignment.warning {
        Some(warning) => terminate_lead_ms(assignment.stop_grace_ms, Some(warning)),
        None => assignment.stop_grace_ms,
    }
}

const fn restart_reason(reason: RestartReason) -> &'static str {
    match reason {
        RestartReason::First => "first",
        RestartReason::Preempt => "preempt",
        RestartReason::Infra => "infra",
        RestartReason::User => "user",
        RestartReason::Admin => "admin",
    }
}
