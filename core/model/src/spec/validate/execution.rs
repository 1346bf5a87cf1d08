//! Validation of execution settings. Whether a host has a secret is checked by its worker.

use std::collections::BTreeSet;

use crate::limits;
use crate::spec::validate::{Findings, container};
use crate::spec::{CpuBinding, Execution, JobSpec, TaskGroup};

/// Thousandths of one CPU.
const CPU_MILLI: u32 = 1_000;

/// Texts that count towards the size of a specification.
pub(super) fn texts(spec: &JobSpec) -> impl Iterator<Item = &String> {
    let groups = spec.groups.iter();
    groups
        .flat_map(|group| &group.execution.secrets)
        .flat_map(|secret| [&secret.name, secret.form.variable()])
        .chain(spec.groups.iter().flat_map(container::texts))
}

pub(super) fn check(found: &mut Findings, spec: &JobSpec) {
    for (position, group) in spec.groups.iter().enumerate() {
        let at = |field: &str| format!("groups[{position}].execution.{field}");
        container::check(found, &group.execution, &at);
        kernel_limits(found, &group.execution, &at);
        secrets(found, group, &at);
        let whole = group.resources.cpus_milli > 0 && group.resources.cpus_milli % CPU_MILLI == 0;
        let bound = group.execution.binding == CpuBinding::Cpus;
        found.check(!bound || whole, &at("binding"), || {
            "`cpus` is for tasks that ask for whole CPUs (resources.cpus)".to_owned()
        });
    }
}

fn kernel_limits(found: &mut Findings, execution: &Execution, at: &dyn Fn(&str) -> String) {
    for (kind, limit) in &execution.ulimits {
        let rises = match (limit.soft, limit.hard) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(soft), Some(hard)) => soft <= hard,
        };
        found.check(rises, &at(&format!("ulimits.{kind}")), || {
            "its soft limit must not be above its hard one".to_owned()
        });
    }
    let Some(pids_max) = execution.pids_max else {
        return;
    };
    found.check(pids_max > 0, &at("pids_max"), || {
        "must be at least 1, or absent for no limit".to_owned()
    });
    let limit = limits::PIDS_PER_TASK_MAX;
    found.at_most(&at("pids_max"), pids_max, "PIDS_PER_TASK_MAX", limit);
}

fn secrets(found: &mut Findings, group: &TaskGroup, at: &dyn Fn(&str) -> String) {
    let secrets = &group.execution.secrets;
    let limit = limits::SECRETS_PER_GROUP_MAX;
    found.at_most(
        &at("secrets"),
        secrets.len(),
        "SECRETS_PER_GROUP_MAX",
        limit,
    );
    let mut variables: BTreeSet<&String> = group.environment.keys().collect();
    for (position, secret) in secrets.iter().enumerate() {
        let field = at(&format!("secrets[{position}]"));
        let named = format!("{field}.name");
        found.name(&named, &secret.name);
        let plain = |symbol: char| symbol.is_ascii_alphanumeric() || "._-".contains(symbol);
        let is_file = secret.name.chars().all(plain) && !secret.name.starts_with('.');
        found.check(is_file, &named, || {
            "must be the name of a file: letters, digits, `_`, `-` and `.`, which it does not begin with"
                .to_owned()
        });
        let variable = secret.form.variable();
        let usable = !variable.is_empty() && !variable.contains(['=', '\0']);
        found.check(usable && !variable.starts_with("MUSTER_"), &field, || {
            format!(
                "`{variable}` is not a variable that a job may set \
                 (empty, contains `=` or NUL, or begins with MUSTER_)"
            )
        });
        found.check(variables.insert(variable), &field, || {
            format!("`{variable}` is set twice, by `environment` or by secrets")
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Secret, SecretForm, Ulimit, UlimitKind, validate};
    use crate::testing::single;

    fn fields(change: impl FnOnce(&mut TaskGroup)) -> Vec<String> {
        let mut spec = single("one", 1, 0);
        change(&mut spec.groups[0]);
        let broken = validate(&spec).into_iter();
        broken.map(|violation| violation.field).collect()
    }

    fn secret(name: &str, variable: &str) -> Secret {
        Secret {
            name: name.to_owned(),
            form: SecretForm::Variable(variable.to_owned()),
        }
    }

    #[test]
    fn settings_that_no_host_supports_are_named() {
        let limit = |soft, hard| Ulimit { soft, hard };
        let found = fields(|group| {
            let limits = [
                (UlimitKind::Nofile, limit(Some(9), Some(8))),
                (UlimitKind::Core, limit(None, Some(0))),
                (UlimitKind::Stack, limit(Some(9), None)),
            ];
            group.execution.ulimits = limits.into();
            group.execution.pids_max = Some(0);
            group.execution.binding = CpuBinding::Cpus;
            group.resources.cpus_milli = 1_500;
        });
        let expected = ["ulimits.core", "ulimits.nofile", "pids_max", "binding"];
        assert_eq!(
            found,
            expected.map(|field| format!("groups[0].execution.{field}"))
        );
        assert!(fields(|group| group.execution.binding = CpuBinding::Cpus).is_empty());
    }

    #[test]
    fn a_secret_is_a_file_of_one_folder_and_sets_a_variable_once() {
        let found = fields(|group| {
            group.environment.insert("TOKEN".to_owned(), "x".to_owned());
            group.execution.secrets = vec![
                secret("../etc/shadow", "A"),
                secret(".hidden", "B"),
                secret("good-one.key", "TOKEN"),
                secret("good", "MUSTER_TOKEN"),
            ];
        });
        let expected = ["[0].name", "[1].name", "[2]", "[3]"];
        assert_eq!(
            found,
            expected.map(|field| format!("groups[0].execution.secrets{field}"))
        );
    }
}
