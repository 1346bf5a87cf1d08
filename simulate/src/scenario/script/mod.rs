//! The language: lines of text to statements, with every complaint at its line and column.

mod arguments;
mod documents;
mod error;
mod expectation;
mod grammar;
mod parse;
mod statement;
mod submission;
mod values;
mod words;

pub use error::ScriptError;
pub(crate) use statement::{
    Blocking, Ending, Expectation, ExpectedPhase, GpuName, HostsSpec, Shown, Statement, Step,
    Submission, Target, Turn,
};

/// What a recorded result's lines begin with.
pub(crate) const RESULT_MARK: &str = ">";

/// Where the files that a script names (`queues FILE`) come from.
pub trait Files {
    /// A file's text.
    ///
    /// # Errors
    /// Why it cannot be read, for people.
    fn read(&self, path: &str) -> Result<String, String>;
}

/// A script that names no files.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _path: &str) -> Result<String, String> {
        Err("files cannot be read here".to_owned())
    }
}

/// A script, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    pub(crate) steps: Vec<Step>,
    text: String,
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    /// The first place that cannot be read, and what is allowed there.
    pub fn parse(text: &str, files: &dyn Files) -> Result<Self, ScriptError> {
        let steps = parse::Parser::new(text, files).steps()?;
        Ok(Self {
            steps,
            text: text.to_owned(),
        })
    }

    /// Whether results stand in it, which a run must then give again.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.steps.iter().any(|step| !step.recorded.is_empty())
    }

    /// The same script without the results that stand in it.
    #[must_use]
    pub fn without_results(mut self) -> Self {
        for step in &mut self.steps {
            step.recorded.clear();
        }
        self
    }

    /// Its text with other results: `results` gives the lines of every step, by the step's first line.
    #[must_use]
    pub fn with_results(&self, results: &std::collections::BTreeMap<u32, Vec<String>>) -> String {
        let below: std::collections::BTreeMap<u32, &Vec<String>> = self
            .steps
            .iter()
            .filter_map(|step| Some((step.last_line, results.get(&step.line)?)))
            .collect();
        let mut text = String::new();
        for (number, line) in (1u32..).zip(self.text.lines()) {
            if line.starts_with(RESULT_MARK) {
                continue;
            }
            text.push_str(line.trim_end());
            text.push('\n');
            for result in below
                .get(&number)
                .into_iter()
                .flat_map(|lines| lines.iter())
            {
                text.push_str(format!("{RESULT_MARK} {result}").trim_end());
                text.push('\n');
            }
        }
        text
    }
}
