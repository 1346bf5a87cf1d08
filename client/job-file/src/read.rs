//! Reading job files, with all rules checked before submission.

use std::cell::LazyCell;

use muster_model::spec::{JobSpec, Violation, check_submission, validate};
use muster_proto::v1;

use crate::schema::JobFile;
use crate::strict_yaml::{Document, FileError, Positions, parse_all};

/// A job of a file, ready for submission.
#[derive(Clone, Debug)]
pub struct NamedSpec {
    /// Origin: the file's name, and the document's number if there are several.
    pub origin: String,
    /// The job.
    pub spec: v1::JobSpec,
}

/// Parses all jobs of a file. `user` is the default for jobs that name no user.
///
/// # Errors
/// The first syntax error, or all violated rules.
pub fn read_jobs(file: &str, text: &str, user: &str) -> Result<Vec<NamedSpec>, Vec<FileError>> {
    let documents = parse_all::<JobFile>(file, text).map_err(|error| vec![of_pipeline(error)])?;
    let several = documents.len() > 1;
    let mut jobs = Vec::new();
    let mut errors = Vec::new();
    for (position, document) in documents.into_iter().enumerate() {
        let found = check(file, &document, user);
        if !found.is_empty() {
            errors.extend(found);
            continue;
        }
        let origin = if several {
            format!("{file} (document {})", position + 1)
        } else {
            file.to_owned()
        };
        let spec = document.value.into_spec(user);
        jobs.push(NamedSpec { origin, spec });
    }
    if errors.is_empty() {
        Ok(jobs)
    } else {
        Err(errors)
    }
}

/// Replaces the error for a pipeline file with a hint to the right command.
fn of_pipeline(mut error: FileError) -> FileError {
    if error.field == "jobs" && error.message.starts_with("unknown field") {
        error.message =
            "belongs to a pipeline: `muster pipeline submit FILE` takes such a file".to_owned();
    }
    error
}

/// All rules that a document violates, at the positions of the offending fields.
fn check(file: &str, document: &Document<'_, JobFile>, user: &str) -> Vec<FileError> {
    let places = LazyCell::new(|| Positions::of(document.text));
    let place = |field: &str, message: String| FileError {
        file: file.to_owned(),
        position: places
            .find(field)
            .map(|(line, column)| (line + document.lines_before, column)),
        field: field.to_owned(),
        message,
    };
    let job = &document.value;
    if let (false, Some(field)) = (job.is_short(), job.short_field()) {
        let message = "belongs to a job without `groups`; move it into the group".to_owned();
        return vec![place(field, message)];
    }
    if let Some(field) = job.pipeline_field() {
        let message = "belongs to a job of a pipeline (`muster pipeline submit`); a job of its own names others \
                       by their ids, under `lifecycle`"
            .to_owned();
        return vec![place(field, message)];
    }
    let violations = broken_rules(job.clone().into_spec(user)).into_iter();
    let errors = violations.map(|violation| {
        let rule = rule_in_file(&violation);
        place(&field_in_file(&violation.field, job.is_short()), rule)
    });
    errors.collect()
}

/// All rules that a job violates.
pub fn broken_rules(spec: v1::JobSpec) -> Vec<Violation> {
    match JobSpec::try_from(spec) {
        Ok(spec) => {
            let mut broken = validate(&spec);
            broken.extend(check_submission(&spec));
            broken
        }
        Err(invalid) => vec![invalid.into()],
    }
}

/// Maps a field of the specification to its name in a job file.
///
/// Files write amounts with units, so their field names carry none; the short form has the only group's
/// fields at the top level.
pub(crate) fn field_in_file(field: &str, short: bool) -> String {
    let limit = field
        .strip_suffix("_ms_max")
        .map(|field| format!("{field}_max"));
    let with_unit = limit.as_deref().unwrap_or(field);
    let field = ["_ms", "_mib", "_milli"]
        .iter()
        .find_map(|unit| with_unit.strip_suffix(unit))
        .unwrap_or(with_unit);
    let in_group = field.strip_prefix("groups[0].").filter(|_| short);
    match in_group {
        Some("count") => "tasks".to_owned(),
        Some(field) => field.to_owned(),
        // The short form has one group, so a rule about all groups concerns its count.
        None if short && field == "groups" => "tasks".to_owned(),
        None => field.to_owned(),
    }
}

/// The violated rule with the unit of its numbers: files and flags write amounts in other units.
pub fn rule_in_file(violation: &Violation) -> String {
    let units = [("_ms", "ms"), ("_mib", "MiB"), ("_milli", "thousandths")];
    let unit = units
        .iter()
        .find(|(ending, _)| violation.field.ends_with(ending));
    match unit {
        Some((_, unit)) => format!("{}, in {unit}", violation.rule),
        None => violation.rule.clone(),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn errors(text: &str) -> Vec<String> {
        let errors = read_jobs("job.yaml", text, "ada").map(|_| ()).unwrap_err();
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_short_form_is_one_group() {
        let text = "name: train\ngang: true\ntasks: 4\nresources: {gpus: 2, cpus: 0.5, memory: 16GiB}\n\
                    command: [python, train.py]\nstop_grace: 1m\nretry: {retries_max: 3, backoff: 10s}\n";
        let jobs = read_jobs("job.yaml", text, "ada").unwrap();
        let spec = &jobs[0].spec;
        assert_eq!(spec.user, "ada");
        assert_eq!(spec.stop_grace_ms, Some(60_000));
        assert_eq!(spec.retry.unwrap().backoff_ms, 10_000);
        let group = &spec.groups[0];
        assert_eq!((group.count, &*group.command[1]), (Some(4), "train.py"));
        let resources = group.resources.as_ref().unwrap();
        let amounts = (resources.gpus, resources.cpus_milli, resources.memory_mib);
        assert_eq!(amounts, (2, 500, 16_384));
    }

    #[test]
    fn a_backoff_may_be_given_without_a_number_of_retries() {
        let text = "name: a\ncommand: [x]\nretry: {backoff: 10s}\n";
        let jobs = read_jobs("job.yaml", text, "ada").unwrap();
        let retry = jobs[0].spec.retry.unwrap();
        assert_eq!((retry.retries_max, retry.backoff_ms), (0, 10_000));
    }

    #[test]
    fn a_ulimit_is_one_number_or_a_soft_and_a_hard_limit() {
        let file = |limit: &str| {
            format!("name: a\ncommand: [x]\nexecution:\n  ulimits:\n    nofile: {limit}\n")
        };
        let text = file("{soft: 1, hard: unlimited}");
        let jobs = read_jobs("job.yaml", &text, "ada").unwrap();
        let limit = &jobs[0].spec.groups[0].execution.as_ref().unwrap().ulimits[0];
        assert_eq!((limit.soft, limit.hard), (Some(1), None));
        for limit in ["{soft: 1, hard: 2, harder: 3}", "{soft: 1}", "many"] {
            let found = errors(&file(limit));
            assert_eq!(found.len(), 1, "{limit}");
            assert!(
                found[0].contains("or {soft: ..., hard: ...}"),
                "{limit}: {found:?}"
            );
        }
    }

    #[test]
    fn json_job_files_are_accepted() {
        let text = r#"{"name": "a\u00e4", "command": ["true"], "labels": {"team": "x"}}"#;
        let jobs = read_jobs("job.json", text, "ada").unwrap();
        assert_eq!(jobs[0].spec.name, "aä");
        assert_eq!(jobs[0].spec.labels["team"], "x");
    }

    #[test]
    fn each_document_is_a_job() {
        let text = "name: a\ncommand: [x]\n---\nname: b\ncommand: [y]\n";
        let jobs = read_jobs("jobs.yaml", text, "ada").unwrap();
        let names: Vec<&str> = jobs.iter().map(|job| &*job.spec.name).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(jobs[1].origin, "jobs.yaml (document 2)");
    }

    #[test]
    fn job_fields_survive_writing_and_reading_a_job_file() {
        let text = "name: a\nuser: u\ngang: true\ngroups:\n- name: main\n  count: 2\n  command: [x, 'y z']\n  \
                    resources: {cpus: 1.5, memory: 3MiB}\n  \
                    layout: {count_min: 1, within_tasks: 2, within: {level: socket}}\n  \
                    execution: {ulimits: {nofile: 4096, memlock: unlimited, stack: {soft: 8, hard: unlimited}}, \
                    pids_max: 9, binding: numa, \
                    secrets: [{name: s, as: {variable: V}}, {name: t, as: {file: F}}], \
                    container: {image: 'r/i:1', pull: always, entrypoint: [e], user: '1:2', userns: host, shm: 2GiB, \
                    gpus: 'v.com/g={uuid}', init: true, mounts: [{source: /a, target: /b, read_only: true}]}}\n\
                    labels: {k: 'true'}\nscheduling:\n  opportunistic: true\n  run_time_max: 2h\n  packing: spread\n  \
                    within: {level: rack, required: false}\n  hosts: [n1]\n  \
                    hosts_excluded: [n2]\n  assembly_max: 10m\n\
                    lifecycle:\n  after_ok: [41, 42]\n  after_failed: [43]\n  rules:\n  \
                    - {on: {codes: [3, 9]}, then: fail}\n  - {on: out_of_memory, then: retry_free}\n";
        // Opportunistic jobs may have neither of these.
        let guaranteed = text.replace(
            "opportunistic: true",
            "lazy_preemption: true\n  pinned_cell: lab",
        );
        for text in [text, &guaranteed] {
            let spec = read_jobs("job.yaml", text, "ada").unwrap().remove(0).spec;
            let written = serde_saphyr::to_string(&JobFile::from(&spec)).unwrap();
            let again = read_jobs("written.yaml", &written, "ada")
                .unwrap()
                .remove(0);
            assert_eq!(again.spec, spec, "{written}");
        }
    }

    #[test]
    fn syntax_errors_are_located_and_explained() {
        let cases = [
            (
                "name: a\ncomand: [x]\n",
                "job.yaml:2:1: comand: unknown field `comand`; did you mean `command`?",
            ),
            (
                "name: a\nzzzz: [x]\n",
                "job.yaml:2:1: zzzz: unknown field `zzzz`, expected one of name, ",
            ),
            (
                "name: p\njobs:\n- {name: a, command: [x]}\n",
                "job.yaml:2:1: jobs: belongs to a pipeline: `muster pipeline submit FILE`",
            ),
            (
                "name: a\ncommand: [x]\nenvironment: {E: null}\n",
                "job.yaml:3:18: environment.E: must be a text, not null: write \"\"",
            ),
            (
                "name: a\nname: b\ncommand: [x]\n",
                "job.yaml:2:1: `name` is given twice",
            ),
            (
                "name: a\ncommand: [x]\nenvironment:\n  A: '1'\n  A: '2'\n",
                "job.yaml:5:3: environment: `A` is given twice",
            ),
            (
                "name: a\ncommand: [x]\ntasks: many\n",
                "job.yaml:3:8: tasks: must be a whole number, 0 or more",
            ),
            ("name: a\ncommand: python x\n", "job.yaml:2:10: command: "),
            (
                "name: a\ncommand: [x]\nstop_grace: 30\n",
                "job.yaml:3:13: stop_grace: `30` is not a duration: the unit is missing",
            ),
            (
                "name: a\ncommand: [x]\nresources:\n  memory: 16G\n",
                "job.yaml:4:11: resources.memory: `16G` is not a size: the unit is unknown",
            ),
            ("command: [x]\n", "job.yaml:1:1: missing field"),
            (
                "name: a\ncommand: [x\n",
                "job.yaml:2:10: command: unclosed bracket",
            ),
        ];
        for (text, expected) in cases {
            let found = errors(text);
            assert!(
                found[0].starts_with(expected),
                "{text}\n{found:?}\n{expected}"
            );
        }
    }

    #[test]
    fn violated_rules_are_located_and_explained() {
        let text = "# a comment\nname: ''\ntasks: 0\nresources:\n  gpus: 129\ncommand: [x]\n\
                    stop_grace: 2h\nworking_directory: here\n";
        assert_eq!(
            errors(text),
            [
                "job.yaml:2:7: name: must not be empty",
                "job.yaml:7:13: stop_grace: 7200000 is over the limit of 3600000 (STOP_GRACE_MS_MAX), in ms",
                "job.yaml:3:8: tasks: must be at least 1",
                "job.yaml:5:9: resources.gpus: 129 is over the limit of 128 (GPUS_PER_TASK_MAX)",
                "job.yaml:8:20: working_directory: must be an absolute path",
            ]
        );
    }

    #[test]
    fn too_many_tasks_are_located_at_their_number() {
        let rule = "1000000000 is over the limit of 1000000 (TASKS_PER_JOB_MAX)";
        let text = "name: a\ncommand: [x]\ntasks: 1000000000\n";
        assert_eq!(errors(text), [format!("job.yaml:3:8: tasks: {rule}")]);
        let text = "name: a\ngroups:\n- {count: 1000000000, command: [x]}\n";
        assert_eq!(errors(text), [format!("job.yaml:3:3: groups: {rule}")]);
    }

    #[test]
    fn errors_of_later_documents_count_lines_of_the_whole_file() {
        let text = "name: a\ncommand: [x]\n---\nname: b\ngroups:\n- {count: 0, command: [x]}\n";
        assert_eq!(
            errors(text),
            ["job.yaml:6:11: groups[0].count: must be at least 1"]
        );
        let text = "name: a\ncommand: [x]\n---\nname: b\nwhat: c\n";
        assert!(errors(text)[0].starts_with("job.yaml:5:1: what: unknown field"));
    }

    #[test]
    fn dependencies_by_name_are_rejected_outside_pipelines() {
        let found = errors("name: a\ncommand: [x]\nafter_ok: [b]\n");
        assert!(
            found[0].starts_with("job.yaml:3:11: after_ok: belongs to a job of a pipeline"),
            "{found:?}"
        );
    }

    #[test]
    fn the_short_form_and_groups_do_not_mix() {
        let text = "name: a\ntasks: 3\ngroups: [{command: [x]}]\n";
        let message = "belongs to a job without `groups`; move it into the group";
        assert_eq!(errors(text), [format!("job.yaml:2:8: tasks: {message}")]);
    }
}
