//! Scenario language: parses lines of text into statements, with line and column in every error.

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
    Blocking, Expectation, ExpectedPhase, GpuName, HealthChange, HostsSpec, Shown, Statement, Step,
    Submission, Target, TaskEnd,
};

/// Prefix of a recorded result's lines.
pub(crate) const RESULT_MARK: &str = ">";

/// Source of the files that a script names (`queues FILE`).
pub trait Files {
    /// A file's text.
    ///
    /// # Errors
    /// The reason why it cannot be read, as text for users.
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

/// A parsed script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    pub(crate) steps: Vec<Step>,
    text: String,
}

impl Script {
    /// Parses a script.
    ///
    /// # Errors
    /// The first invalid position, and the allowed syntax there.
    pub fn parse(text: &str, files: &dyn Files) -> Result<Self, ScriptError> {
        let steps = parse::Parser::new(text, files).steps()?;
        Ok(Self {
            steps,
            text: text.to_owned(),
        })
    }

    /// Whether it contains recorded results, which a run must reproduce.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.steps.iter().any(|step| !step.recorded.is_empty())
    }

    /// The same script without its recorded results.
    #[must_use]
    pub fn without_results(mut self) -> Self {
        for step in &mut self.steps {
            step.recorded.clear();
        }
        self
    }

    /// Its text with new results: `results` gives the lines of every step, by the step's first line.
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
