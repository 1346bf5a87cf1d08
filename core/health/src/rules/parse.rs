//! Conversion of a file's tables to rules, with a precise error for each mistake.

use std::ops::RangeInclusive;

use muster_model::health::{Action, Charge, ComponentKind, Scope, Weight};
use muster_model::limits;
use muster_model::time::{DAY_MS, SECOND_MS};

use crate::component::{REPAIRS_KEPT_MAX, RecoveryLimits};
use crate::guard_rails::RailsLimits;
use crate::rules::text::{self, Entry, Table, Value};
use crate::rules::{
    CODES, CONDITIONS_PER_SIDE_MAX, Clears, Codes, Condition, FORMAT, Hold, Mode, Origin,
    RULES_MAX, Rule, RuleError, Side, rails, thresholds,
};

/// Entries allowed before the first rule.
const HEAD: [&str; 5] = [
    "format",
    "first_wait_s",
    "first_probation_s",
    "reboots_max",
    "reboots_span_s",
];
/// Fields of a rule, in the order in which they are written.
const FIELDS: &[&str] = &[
    "component",
    "source",
    "healthy",
    "degraded",
    "fatal",
    "degraded_actions",
    "fatal_actions",
    "degraded_block",
    "fatal_block",
    "clears",
    "charge",
    "evidence",
    "mode",
    "origin",
    "figure",
];

/// Content of a file.
pub(super) struct File {
    /// All rules, by name.
    pub(super) rules: Vec<Rule>,
    /// Entries before the first rule.
    pub(super) recovery_limits: RecoveryLimits,
    pub(super) rails: RailsLimits,
    /// Tables of codes, if the file has them.
    pub(super) codes: Option<Codes>,
}

/// Parses a file.
pub(super) fn file(text: &str) -> Result<File, RuleError> {
    let tables = text::read(text)?;
    let mut unread = tables.iter();
    let recovery_limits = read_head(unread.next())?;
    let mut rules: Vec<Rule> = Vec::new();
    let (mut limits, mut codes) = (None, None);
    for table in unread {
        let of_rule = |error: RuleError| error.of_rule(&table.name);
        let twice = |remedy| of_rule(RuleError::at(table.line, "duplicate entry", remedy));
        let is_second = match table.name.as_str() {
            rails::RAILS => limits
                .replace(rails::read(table).map_err(of_rule)?)
                .is_some(),
            CODES => codes
                .replace(Codes::read(table).map_err(of_rule)?)
                .is_some(),
            name if rules.iter().any(|known| known.id == name) => {
                return Err(twice("rename or remove one"));
            }
            _ => {
                rules.push(read_rule(table).map_err(of_rule)?);
                false
            }
        };
        if is_second {
            return Err(twice("remove one"));
        }
        if rules.len() > RULES_MAX {
            let problem = format!("there are more than {RULES_MAX} rules (RULES_MAX)");
            return Err(RuleError::at(table.line, problem, "remove some"));
        }
    }
    rules.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(File {
        rules,
        recovery_limits,
        rails: limits.unwrap_or_default(),
        codes,
    })
}

/// Parses the entries before the first rule: the format, and the waits.
fn read_head(head: Option<&Table>) -> Result<RecoveryLimits, RuleError> {
    let entries = head.map_or(&[][..], |head| &head.entries);
    let mut recovery_limits = RecoveryLimits::default();
    let mut has_format = false;
    for entry in entries {
        let wrong = |problem: &str, remedy: String| {
            RuleError::at(entry.line, problem, remedy).of_field(&entry.name)
        };
        match (entry.name.as_str(), &entry.value) {
            ("format", Value::Number(FORMAT)) => has_format = true,
            ("format", _) => {
                let problem = "this build cannot read this format";
                return Err(wrong(problem, format!("write `format = {FORMAT}`")));
            }
            ("reboots_max", value) => {
                let range = 1..=REPAIRS_KEPT_MAX;
                let remedy = format!("write a whole number from 1 to {REPAIRS_KEPT_MAX}");
                recovery_limits.reboots_max = number_in(value, &range)
                    .ok_or_else(|| wrong("not a number in range", remedy))?;
            }
            (name, value) => {
                let Some(span) = span_of(&mut recovery_limits, name) else {
                    let problem = "this entry is not allowed before the first rule";
                    let remedy = format!("write one of {}", HEAD.join(", "));
                    return Err(wrong(problem, remedy));
                };
                let remedy = || format!("write seconds from 1 to {SPAN_S_MAX}");
                *span = span_ms(value).ok_or_else(|| wrong("not a valid span", remedy()))?;
            }
        }
    }
    if has_format {
        return Ok(recovery_limits);
    }
    let remedy = format!("write `format = {FORMAT}` before the first rule");
    Err(RuleError::at(0, "the file names no format", remedy))
}

fn span_of<'a>(recovery_limits: &'a mut RecoveryLimits, name: &str) -> Option<&'a mut u64> {
    match name {
        "first_wait_s" => Some(&mut recovery_limits.first_wait_ms),
        "first_probation_s" => Some(&mut recovery_limits.first_probation_ms),
        "reboots_span_s" => Some(&mut recovery_limits.reboots_span_ms),
        _ => None,
    }
}

/// Longest span in a file: a week.
pub(super) const SPAN_S_MAX: u64 = 7 * DAY_MS / SECOND_MS;

/// A whole number in a range.
pub(super) fn number_in(value: &Value, range: &RangeInclusive<u32>) -> Option<u32> {
    let Value::Number(number) = value else {
        return None;
    };
    let number = u32::try_from(*number).ok()?;
    range.contains(&number).then_some(number)
}

pub(super) fn span_ms(value: &Value) -> Option<u64> {
    let Value::Number(seconds) = value else {
        return None;
    };
    let seconds = u64::try_from(*seconds).ok()?;
    (1..=SPAN_S_MAX)
        .contains(&seconds)
        .then_some(seconds * SECOND_MS)
}

fn read_rule(table: &Table) -> Result<Rule, RuleError> {
    let fields = Fields::of(table)?;
    let side = |when: &str, actions: &str, block: &str| -> Result<Side, RuleError> {
        Ok(Side {
            when: fields.conditions(when)?,
            actions: fields.actions(actions)?,
            block: fields.word(block, Scope::of, Scope::all_names, Some(Scope::None))?,
        })
    };
    let rule = Rule {
        id: table.name.clone(),
        component: fields.word(
            "component",
            ComponentKind::of,
            ComponentKind::all_names,
            None,
        )?,
        source: fields.text("source")?.to_owned(),
        healthy: fields.conditions("healthy")?,
        degraded: side("degraded", "degraded_actions", "degraded_block")?,
        fatal: side("fatal", "fatal_actions", "fatal_block")?,
        clears: fields.word("clears", Clears::of, Clears::all_names, None)?,
        charge: fields.word("charge", Charge::of, Charge::all_names, None)?,
        weight: fields.word("evidence", Weight::of, Weight::all_names, None)?,
        mode: fields.word("mode", Mode::of, Mode::all_names, None)?,
        origin: fields.word("origin", Origin::of, Origin::all_names, None)?,
        figure: fields.text("figure")?.to_owned(),
    };
    check_sense(&rule, &fields)?;
    thresholds::check(&rule)
        .map_err(|(field, problem, remedy)| fields.error(field, problem, remedy))?;
    Ok(rule)
}

/// Checks combinations of fields that are valid individually.
fn check_sense(rule: &Rule, fields: &Fields<'_>) -> Result<(), RuleError> {
    for (side, name) in [(&rule.degraded, "degraded"), (&rule.fatal, "fatal")] {
        let block = format!("{name}_block");
        if side.when.is_empty() && (side.block != Scope::None || !side.actions.is_empty()) {
            let problem = format!("it has consequences, but `{name}` has no condition");
            let remedy = format!("give `{name}` a condition, or remove the consequences");
            return Err(fields.error(&block, problem, remedy));
        }
        let of_gpu = matches!(side.block, Scope::Gpu | Scope::GpuAtTaskEnd);
        if of_gpu && rule.component != ComponentKind::Gpu {
            let problem = format!("a {} has no GPU to block", rule.component);
            return Err(fields.error(&block, problem, "block the host, or nothing"));
        }
        let is_group = matches!(rule.component, ComponentKind::Rack | ComponentKind::Task);
        if is_group && side.block != Scope::None {
            let problem = format!("a {} is not blocked", rule.component);
            return Err(fields.error(&block, problem, "let it alert, or name the host's rule"));
        }
        check_restart(rule, side, name, fields)?;
        let doubts = side.actions.contains(&Action::DoubtResults);
        if doubts && rule.component != ComponentKind::Gpu {
            let problem = format!("a {} computes no results", rule.component);
            let remedy = "let a rule about GPUs doubt results";
            return Err(fields.error(&format!("{name}_actions"), problem, remedy));
        }
    }
    let is_span = |condition: &&Condition| matches!(condition.hold, Hold::Within { .. });
    if let Some(condition) = rule.healthy.iter().find(is_span) {
        let problem = format!("`{condition}` counts healthy occurrences");
        let remedy = "ask for a number of readings in a row, or a span (`for 10m`)";
        return Err(fields.error("healthy", problem, remedy));
    }
    Ok(())
}

/// Services are restarted only by rules that restrict placement on their host, and only while they do.
fn check_restart(
    rule: &Rule,
    side: &Side,
    name: &str,
    fields: &Fields<'_>,
) -> Result<(), RuleError> {
    if !side.actions.contains(&Action::RestartService) {
        return Ok(());
    }
    let holds = [Action::NoNewTask, Action::NoGang, Action::NoPeerGang];
    let keeps_off = side.actions.iter().any(|action| holds.contains(action));
    let is_hosts = rule.component == ComponentKind::Host;
    if is_hosts && keeps_off && side.block == Scope::None {
        return Ok(());
    }
    let problem = "services are restarted only while placement on their host is restricted";
    let remedy = "add `no_gang` or `no_new_task` in a rule about hosts, and block nothing";
    Err(fields.error(&format!("{name}_actions"), problem, remedy))
}

/// A rule's fields by name.
struct Fields<'a> {
    table: &'a Table,
}

impl<'a> Fields<'a> {
    fn of(table: &'a Table) -> Result<Self, RuleError> {
        for (index, entry) in table.entries.iter().enumerate() {
            if !FIELDS.contains(&entry.name.as_str()) {
                let remedy = format!("fields are {}", FIELDS.join(", "));
                let error = RuleError::at(entry.line, "no rule has this field", remedy);
                return Err(error.of_field(&entry.name));
            }
            let before = &table.entries[..index];
            if before.iter().any(|other| other.name == entry.name) {
                let error = RuleError::at(entry.line, "duplicate entry", "remove one");
                return Err(error.of_field(&entry.name));
            }
        }
        Ok(Self { table })
    }

    fn entry(&self, name: &str) -> Option<&'a Entry> {
        self.table.entries.iter().find(|entry| entry.name == name)
    }

    fn error(
        &self,
        name: &str,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> RuleError {
        let line = self.entry(name).map_or(self.table.line, |entry| entry.line);
        RuleError::at(line, problem, remedy).of_field(name)
    }

    /// A required text.
    fn text(&self, name: &str) -> Result<&'a str, RuleError> {
        let limit = limits::TEXT_BYTES_MAX;
        match self.entry(name).map(|entry| &entry.value) {
            Some(Value::Text(text)) if !text.is_empty() && text.len() <= limit => Ok(text),
            Some(_) => {
                let problem = "not a text of valid length";
                let remedy = format!("write 1 to {limit} bytes (TEXT_BYTES_MAX) in quotes");
                Err(self.error(name, problem, remedy))
            }
            None => Err(self.error(name, "it is missing", format!("write `{name} = \"...\"`"))),
        }
    }

    /// One of a set of words; a missing field has the default, if there is one.
    fn word<T>(
        &self,
        name: &str,
        of: fn(&str) -> Option<T>,
        all_names: fn() -> String,
        default: Option<T>,
    ) -> Result<T, RuleError> {
        if let (None, Some(default)) = (self.entry(name), default) {
            return Ok(default);
        }
        let choice = || format!("write one of {}", all_names());
        let text = self.text(name).map_err(|error| RuleError {
            remedy: choice(),
            ..error
        })?;
        of(text).ok_or_else(|| self.error(name, format!("there is no `{text}`"), choice()))
    }

    /// A list; empty if missing.
    fn list(&self, name: &str) -> Result<&'a [String], RuleError> {
        match self.entry(name).map(|entry| &entry.value) {
            None => Ok(&[]),
            Some(Value::Texts(texts)) if texts.len() <= CONDITIONS_PER_SIDE_MAX => Ok(texts),
            Some(_) => {
                let problem = "not a list, or too long";
                let remedy = format!(
                    "write [\"...\"] with at most {CONDITIONS_PER_SIDE_MAX} texts (CONDITIONS_PER_SIDE_MAX)"
                );
                Err(self.error(name, problem, remedy))
            }
        }
    }

    fn conditions(&self, name: &str) -> Result<Vec<Condition>, RuleError> {
        let read = |text: &String| {
            Condition::parse(text).map_err(|(problem, remedy)| self.error(name, problem, remedy))
        };
        self.list(name)?.iter().map(read).collect()
    }

    fn actions(&self, name: &str) -> Result<Vec<Action>, RuleError> {
        let read = |text: &String| {
            let remedy = || format!("actions are {}", Action::all_names());
            Action::of(text)
                .ok_or_else(|| self.error(name, format!("there is no `{text}`"), remedy()))
        };
        self.list(name)?.iter().map(read).collect()
    }
}
