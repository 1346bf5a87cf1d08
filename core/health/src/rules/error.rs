//! Errors in rule files.

/// An error in a rule file, with its position and a remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}; {remedy}", place = self.place())]
pub struct RuleError {
    /// Line in the file, from 1; 0 if it concerns the whole file.
    pub line: usize,
    /// Name of the rule; empty outside of all rules.
    pub rule: String,
    /// Name of the field; empty if it concerns the whole rule.
    pub field: String,
    /// Description of the problem.
    pub problem: String,
    /// Suggested remedy.
    pub remedy: String,
}

impl RuleError {
    /// An error at a line.
    #[must_use]
    pub fn at(line: usize, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            line,
            rule: String::new(),
            field: String::new(),
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }

    /// Adds the name of the rule.
    #[must_use]
    pub fn of_rule(mut self, rule: &str) -> Self {
        rule.clone_into(&mut self.rule);
        self
    }

    /// Adds the name of the field.
    #[must_use]
    pub fn of_field(mut self, field: &str) -> Self {
        field.clone_into(&mut self.field);
        self
    }

    fn place(&self) -> String {
        let mut parts = Vec::new();
        if !self.rule.is_empty() {
            parts.push(format!("rule `{}`", self.rule));
        }
        if !self.field.is_empty() {
            parts.push(format!("field `{}`", self.field));
        }
        if self.line > 0 {
            parts.push(format!("line {}", self.line));
        }
        if parts.is_empty() {
            "rules".to_owned()
        } else {
            parts.join(", ")
        }
    }
}
