//! Evidence of why a task failed: its last output and its launcher's error file.

use std::path::Path;

use muster_model::command::Exit;
use muster_model::evidence;
use serde_json::Value;

use crate::files;
use crate::isolation::account::acting_as_owner_of;
use crate::limits::ERROR_FILE_BYTES_MAX;
use crate::output::tail::LastOutput;

/// Contents of `TORCHELASTIC_ERROR_FILE`.
#[derive(Debug, Default, PartialEq, Eq)]
struct ErrorFile {
    message: String,
    raised_at_s: Option<u64>,
}

/// The evidence for an exit; empty if the task succeeded or there is none.
pub(crate) fn of_end(exit: &Exit, output: &LastOutput, error_file: &Path) -> String {
    if exit.code == Some(0) || exit.start_error.is_some() {
        return String::new();
    }
    let error = read(error_file).unwrap_or_default();
    let texts = [&*error.message, &output.stderr, &output.stdout];
    let found = evidence::find(&texts).map(|finding| finding.line);
    // An error file is evidence by itself, whatever it contains.
    let line = found.or_else(|| error.message.lines().find(|line| !line.trim().is_empty()));
    line.map_or_else(String::new, |line| {
        evidence::evidence(line.trim(), error.raised_at_s)
    })
}

/// `None` if there is no such file, or its contents are not understood.
fn read(path: &Path) -> Option<ErrorFile> {
    let read = || files::read_of_task(path, ERROR_FILE_BYTES_MAX);
    let bytes = acting_as_owner_of(path.parent()?, read).ok()?;
    parse(std::str::from_utf8(&bytes).ok()?)
}

/// `{"message": "..."}`, or `{"message": {"message": "...", "extraInfo": {"timestamp": "1700000000"}}}`.
fn parse(text: &str) -> Option<ErrorFile> {
    let document: Value = serde_json::from_str(text).ok()?;
    let outer = document.get("message")?;
    let message = match outer {
        Value::String(message) => message,
        inner => inner.get("message")?.as_str()?,
    };
    let timestamp = |value: &Value| -> Option<u64> {
        let timestamp = value.get("extraInfo")?.get("timestamp")?;
        timestamp
            .as_u64()
            .or_else(|| timestamp.as_str()?.parse().ok())
    };
    let raised_at_s = timestamp(outer).or_else(|| timestamp(&document));
    Some(ErrorFile {
        message: message.to_owned(),
        raised_at_s,
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    fn failed() -> Exit {
        Exit {
            code: Some(1),
            ..Exit::default()
        }
    }

    fn output(stderr: &str) -> LastOutput {
        LastOutput {
            stdout: String::new(),
            stderr: stderr.to_owned(),
        }
    }

    #[test]
    fn an_error_file_of_either_form_is_read() {
        let long = r#"{"message": {"message": "ValueError: x",
            "extraInfo": {"py_callstack": "a", "timestamp": "17"}}}"#;
        let short = r#"{"message": "ValueError: x", "extraInfo": {"timestamp": 17}}"#;
        for text in [long, short] {
            let error = parse(text).unwrap();
            assert_eq!(
                (&*error.message, error.raised_at_s),
                ("ValueError: x", Some(17))
            );
        }
        for text in ["", "{}", "[1]", r#"{"message": 5}"#] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_error_file_gives_the_time_and_the_rules_choose_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("error.json");
        std::fs::write(
            &path,
            r#"{"message": {"message": "odd", "extraInfo": {"timestamp": "17"}}}"#,
        )
        .unwrap();
        let evidence = |stderr| of_end(&failed(), &output(stderr), &path);
        assert_eq!(evidence("nothing"), "odd\nraised at 17");
        assert_eq!(
            evidence("KeyError: 'a'\nCUDA out of memory\n"),
            "CUDA out of memory\nraised at 17"
        );
        let well = Exit {
            code: Some(0),
            ..Exit::default()
        };
        assert_eq!(of_end(&well, &output("KeyError"), &path), "");
        let nowhere = folder.path().join("none");
        assert_eq!(of_end(&failed(), &output("all well"), &nowhere), "");
        // A pipe without a writer blocks every reader that opens it.
        mkfifoat(CWD, &nowhere, Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(of_end(&failed(), &output("all well"), &nowhere), "");
    }
}
