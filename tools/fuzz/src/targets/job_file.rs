//! Job and pipeline files. A valid job is written as by `muster job show`, and unchanged when it is read
//! again.

use muster_job_file::strict_yaml::FileError;
use muster_job_file::{JobFile, read_jobs, read_pipeline};
use muster_model::spec::JobSpec;
use muster_proto::v1;

use crate::{SMALL, assert_same, bounded, or_panic};

const USER: &str = "ada";

fn shown(errors: Vec<FileError>) -> String {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// The job as the core represents it, where absent and default are the same.
fn spec(wire: v1::JobSpec) -> JobSpec {
    or_panic(JobSpec::try_from(wire), "a job that was checked is refused")
}

fn check_again(wire: &v1::JobSpec, text: &str) {
    let again = read_jobs("again.yaml", text, USER).map_err(shown);
    let mut again = or_panic(
        again,
        &format!("a file that was written is refused:\n{text}"),
    );
    assert_eq!(again.len(), 1, "{text}");
    let again = spec(again.remove(0).spec);
    assert_same(&again, &spec(wire.clone()));
}

/// Checks one input.
pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    bounded(data, SMALL, || {
        drop(read_pipeline("file.yaml", text, USER).map_err(shown));
        let Ok(jobs) = read_jobs("file.yaml", text, USER).map_err(shown) else {
            return;
        };
        for job in jobs {
            let file = JobFile::from(&job.spec);
            let yaml = serde_saphyr::to_string(&file);
            check_again(&job.spec, &or_panic(yaml, "a job is YAML"));
            let json = serde_json::to_string(&file);
            check_again(&job.spec, &or_panic(json, "a job is JSON"));
        }
    });
}
