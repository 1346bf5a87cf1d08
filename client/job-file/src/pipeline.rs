//! Pipeline files: jobs that are submitted as one object, in YAML or JSON.
//!
//! `docs/pipelines.md` documents the format.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

use muster_model::limits::PIPELINE_JOBS_MAX;
use muster_model::spec::{Pipeline, Violation, validate_pipeline};
use muster_proto::v1;
use serde::Deserialize;

use crate::read::{field_in_file, rule_in_file};
use crate::schema::JobFile;
use crate::strict_yaml::{Document, FileError, Positions, parse_all};

/// A pipeline. The order of its jobs in the file is free.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PipelineFile {
    /// Display name; need not be unique.
    name: String,
    /// Its jobs; each may wait for others by their names.
    jobs: Vec<JobFile>,
}

/// A dependency as written in the file.
struct Named {
    /// Path of the name: `jobs[1].after_ok[0]`.
    field: String,
    /// Position in the file of the referenced job; `None` if there is no such job.
    job: Option<usize>,
    /// The referenced name.
    name: String,
    when: v1::Condition,
}

/// Parses the pipeline of a file. `user` is the default for jobs that name no user.
///
/// # Errors
/// The first syntax error, or all violated rules, each with its position.
pub fn read_pipeline(
    file: &str,
    text: &str,
    user: &str,
) -> Result<v1::PipelineSpec, Vec<FileError>> {
    let mut documents = parse_all::<PipelineFile>(file, text).map_err(|error| vec![error])?;
    let error = |field: &str, position, message: String| FileError {
        file: file.to_owned(),
        position,
        field: field.to_owned(),
        message,
    };
    if documents.len() > 1 {
        let message = "holds several documents; a pipeline is one".to_owned();
        return Err(vec![error("", None, message)]);
    }
    let document = documents.remove(0);
    let places = LazyCell::new(|| Positions::of(document.text));
    let place = |(field, message): (String, String)| {
        let position = places
            .find(&field)
            .map(|(line, column)| (line + document.lines_before, column));
        error(&field, position, message)
    };
    match spec_of(&document, user) {
        Ok(spec) => Ok(spec),
        Err(found) => Err(found.into_iter().map(place).collect()),
    }
}

/// Converts to the wire format, or returns every field that violates a rule, with the rule.
fn spec_of(
    document: &Document<'_, PipelineFile>,
    user: &str,
) -> Result<v1::PipelineSpec, Vec<(String, String)>> {
    let file = &document.value;
    // Checked before the pairwise comparison of jobs.
    if file.jobs.len() > PIPELINE_JOBS_MAX {
        let count = file.jobs.len();
        let rule = format!("{count} is over the limit of {PIPELINE_JOBS_MAX} (PIPELINE_JOBS_MAX)");
        return Err(vec![("jobs".to_owned(), rule)]);
    }
    let named = named(&file.jobs);
    let mut found = misplaced(&file.jobs);
    for dependency in named.iter().flatten().filter(|it| it.job.is_none()) {
        let rule = format!("`{}` is not a job of the pipeline", dependency.name);
        found.push((dependency.field.clone(), rule));
    }
    if !found.is_empty() {
        return Err(found);
    }
    let order = order(&file.jobs, &named)?;
    let jobs = order.iter().map(|position| {
        let after = named[*position]
            .iter()
            .map(|dependency| v1::PipelineDependency {
                job: dependency.name.clone(),
                when: dependency.when.into(),
            });
        v1::PipelineJob {
            spec: Some(file.jobs[*position].clone().into_spec(user)),
            after: after.collect(),
        }
    });
    let spec = v1::PipelineSpec {
        name: file.name.clone(),
        jobs: jobs.collect(),
    };
    let violations = match Pipeline::try_from(spec.clone()) {
        Ok(pipeline) => validate_pipeline(&pipeline),
        Err(invalid) => vec![invalid.into()],
    };
    let in_file = |violation: Violation| {
        let field = field_of(&violation.field, &order, &file.jobs);
        (field, rule_in_file(&violation))
    };
    if violations.is_empty() {
        return Ok(spec);
    }
    Err(violations.into_iter().map(in_file).collect())
}

/// Fields of the short form in jobs that have groups.
fn misplaced(jobs: &[JobFile]) -> Vec<(String, String)> {
    let mixed = jobs.iter().enumerate().filter(|(_, job)| !job.is_short());
    let fields = mixed.filter_map(|(position, job)| Some((position, job.short_field()?)));
    let rule = "belongs to a job without `groups`; move it into the group";
    fields
        .map(|(position, field)| (format!("jobs[{position}].{field}"), rule.to_owned()))
        .collect()
}

/// Dependencies of each job, in the order of the file. If two jobs have the same name, the first is meant.
fn named(jobs: &[JobFile]) -> Vec<Vec<Named>> {
    let mut positions: BTreeMap<&str, usize> = BTreeMap::new();
    for (position, job) in jobs.iter().enumerate() {
        positions.entry(&job.name).or_insert(position);
    }
    let of_job = |(own, job): (usize, &JobFile)| {
        let lists = [
            ("after_ok", &job.after_ok, v1::Condition::Succeeded),
            ("after_any", &job.after_any, v1::Condition::Ended),
            ("after_failed", &job.after_failed, v1::Condition::Failed),
        ];
        let mut found = Vec::new();
        for (list, names, when) in lists {
            for (number, name) in names.iter().enumerate() {
                found.push(Named {
                    field: format!("jobs[{own}].{list}[{number}]"),
                    job: positions.get(name.as_str()).copied(),
                    name: name.clone(),
                    when,
                });
            }
        }
        found
    };
    jobs.iter().enumerate().map(of_job).collect()
}

/// Positions in the file in dependency order; in the file's order if there is a cycle.
fn order(jobs: &[JobFile], named: &[Vec<Named>]) -> Result<Vec<usize>, Vec<(String, String)>> {
    let mut order = Vec::new();
    let mut done = BTreeSet::new();
    while order.len() < jobs.len() {
        let is_open = |dependency: &Named| dependency.job.is_some_and(|job| !done.contains(&job));
        let next =
            (0..jobs.len()).find(|job| !done.contains(job) && !named[*job].iter().any(is_open));
        let Some(next) = next else {
            return Err(cycle(jobs, named, &done));
        };
        done.insert(next);
        order.push(next);
    }
    Ok(order)
}

/// Finds a dependency cycle among the remaining jobs, reported at one of its dependencies.
fn cycle(jobs: &[JobFile], named: &[Vec<Named>], done: &BTreeSet<usize>) -> Vec<(String, String)> {
    let open_of = |job: usize| {
        let mut open = named[job].iter();
        open.find(|it| it.job.is_some_and(|other| !done.contains(&other)))
    };
    let Some(mut at) = (0..jobs.len()).find(|job| !done.contains(job)) else {
        return Vec::new();
    };
    let mut path = Vec::new();
    while !path.contains(&at) {
        path.push(at);
        match open_of(at).and_then(|dependency| dependency.job) {
            Some(next) => at = next,
            None => return Vec::new(),
        }
    }
    let circle: Vec<usize> = path.into_iter().skip_while(|job| *job != at).collect();
    let names: Vec<&str> = circle
        .iter()
        .chain(std::iter::once(&at))
        .map(|job| jobs[*job].name.as_str())
        .collect();
    let field = open_of(at).map_or_else(String::new, |dependency| dependency.field.clone());
    let rule = format!("forms a cycle: {}", names.join(" waits for "));
    vec![(field, rule)]
}

/// Maps the path of a field of the specification, whose jobs are in dependency order, to its path in the
/// file.
fn field_of(field: &str, order: &[usize], jobs: &[JobFile]) -> String {
    let in_job = field
        .strip_prefix("jobs[")
        .and_then(|rest| rest.split_once(']'));
    let position = in_job.and_then(|(number, _)| order.get(number.parse::<usize>().ok()?));
    let (Some((_, path)), Some(position)) = (in_job, position) else {
        return field.to_owned();
    };
    let path = path.strip_prefix('.').unwrap_or(path);
    let name = field_in_file(path, jobs[*position].is_short());
    format!("jobs[{position}].{name}")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn errors(text: &str) -> Vec<String> {
        let errors = read_pipeline("p.yaml", text, "ada")
            .map(|_| ())
            .unwrap_err();
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn jobs_are_sorted_after_their_dependencies() {
        let text = "name: nightly\njobs:\n- {name: report, command: [r], after_any: [train]}\n\
                    - {name: train, gang: true, tasks: 4, command: [t], after_ok: [prepare]}\n\
                    - {name: prepare, command: [p]}\n\
                    - {name: alarm, command: [a], after_failed: [train, prepare]}\n";
        let spec = read_pipeline("p.yaml", text, "ada").unwrap();
        let names: Vec<&str> = spec
            .jobs
            .iter()
            .map(|job| &*job.spec.as_ref().unwrap().name)
            .collect();
        assert_eq!(names, ["prepare", "train", "report", "alarm"]);
        assert_eq!(spec.jobs[1].after[0].job, "prepare");
        assert_eq!(spec.jobs[2].after[0].when(), v1::Condition::Ended);
        assert_eq!(spec.jobs[3].after.len(), 2);
        assert_eq!(spec.jobs[0].spec.as_ref().unwrap().user, "ada");
    }

    #[test]
    fn unknown_names_and_cycles_are_located() {
        let text = "name: n\njobs:\n- {name: a, command: [x]}\n- name: b\n  command: [x]\n  \
                    after_ok: [a, c]\n";
        assert_eq!(
            errors(text),
            ["p.yaml:6:17: jobs[1].after_ok[1]: `c` is not a job of the pipeline"]
        );
        let text = "name: n\njobs:\n- {name: a, command: [x]}\n- name: b\n  command: [x]\n  \
                    after_any: [a, c]\n- {name: c, command: [x], after_ok: [b]}\n";
        let found = errors(text);
        assert_eq!(
            found,
            ["p.yaml:6:18: jobs[1].after_any[1]: forms a cycle: b waits for c waits for b"]
        );
        let own = errors("name: n\njobs:\n- {name: a, command: [x], after_ok: [a]}\n");
        assert!(own[0].ends_with("forms a cycle: a waits for a"), "{own:?}");
    }

    #[test]
    fn violated_rules_are_located_at_the_job_that_violates_them() {
        let text = "name: n\njobs:\n- {name: late, command: [x], after_ok: [soon]}\n- name: soon\n  \
                    command: [x]\n  stop_grace: 2h\n";
        let found = errors(text);
        assert!(
            found[0].starts_with("p.yaml:6:15: jobs[1].stop_grace: 7200000 is over"),
            "{found:?}"
        );
        let twice =
            errors("name: n\njobs:\n- {name: a, command: [x]}\n- {name: a, command: [x]}\n");
        assert_eq!(
            twice,
            ["p.yaml:4:10: jobs[1].name: `a` names two jobs of the pipeline"]
        );
        let unknown = errors("name: n\njobs:\n- {name: a, command: [x], afterok: [b]}\n");
        assert!(unknown[0].contains("afterok: unknown field"), "{unknown:?}");
        let jobs = "- {name: a, command: [x]}\n".repeat(PIPELINE_JOBS_MAX + 1);
        let many = errors(&format!("name: n\njobs:\n{jobs}"));
        assert_eq!(many.len(), 1, "{many:?}");
        assert!(many[0].contains("jobs: 257 is over the limit of 256 (PIPELINE_JOBS_MAX)"));
        let none = errors("name: n\njobs: []\n");
        assert!(none[0].contains("at least one job"), "{none:?}");
    }
}
