//! Parser of lines into statements.

use muster_harness as testing;
use muster_model::command::Planned;

use crate::scenario::script::arguments::Arguments;
use crate::scenario::script::grammar::{self, grammar_of};
use crate::scenario::script::statement::{
    Ahead, Blocking, HealthChange, HostsSpec, Shown, Statement, Step, Target, TaskEnd,
};
use crate::scenario::script::words::{self, Word};
use crate::scenario::script::{
    Files, RESULT_MARK, ScriptError, documents, expectation, submission, values,
};

/// Maximum number of rounds of one `repeat`.
const ROUNDS_MAX: u32 = 10_000;
/// Characters with which lines of a document begin.
const INDENT: [char; 2] = [' ', '\t'];
/// Placeholder for the round's number in a `repeat`.
const ROUND: &str = "{n}";
/// Default signal of a faulty GPU.
const SIGNAL: &str = "xid-79";
/// Default reason of a block.
const REASON: &str = "maintenance";

type Result<T> = std::result::Result<T, ScriptError>;

/// Parser of a script's lines.
pub(crate) struct Parser<'a> {
    files: &'a dyn Files,
    lines: Vec<(u32, String)>,
    next: usize,
    above: Vec<String>,
    inside: Vec<String>,
    /// Whether it is within a `repeat`.
    repeating: bool,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(text: &str, files: &'a dyn Files) -> Self {
        let lines = text.lines().map(str::to_owned);
        Self {
            files,
            lines: (1u32..).zip(lines).collect(),
            next: 0,
            above: Vec::new(),
            inside: Vec::new(),
            repeating: false,
        }
    }

    /// Parses all steps up to the end, or up to the `end` of a `repeat`.
    pub(crate) fn steps(&mut self) -> Result<Vec<Step>> {
        let mut steps: Vec<Step> = Vec::new();
        while let Some((line, text)) = self.take() {
            if let Some(result) = text.strip_prefix(RESULT_MARK) {
                self.record(&mut steps, line, result)?;
                continue;
            }
            let is_indented = text.starts_with(INDENT) && !text.trim().is_empty();
            if is_indented && steps.last().is_some_and(has_result_below_document) {
                let message = "an indented line below a document belongs to it, and only a result \
                    may stand in between: start this line at the margin";
                return Err(ScriptError::new(line, 1, message.to_owned()));
            }
            let words = words::split(&text, line)?;
            let Some((name, rest)) = words.split_first() else {
                continue;
            };
            let statement = self.statement(line, &text, name, rest.to_vec())?;
            steps.push(Step {
                line,
                last_line: self.lines[self.next - 1].0,
                text: text.trim().to_owned(),
                statement,
                recorded: Vec::new(),
            });
        }
        Ok(steps)
    }

    fn take(&mut self) -> Option<(u32, String)> {
        let line = self.lines.get(self.next)?.clone();
        self.next += 1;
        Some(line)
    }

    fn record(&self, steps: &mut [Step], line: u32, result: &str) -> Result<()> {
        let Some(step) = steps.last_mut().filter(|_| !self.repeating) else {
            let message = "a result must directly follow its step, or the `end` of a repeat";
            return Err(ScriptError::new(line, 1, message.to_owned()));
        };
        let result = result.strip_prefix(' ').unwrap_or(result);
        step.recorded.push(result.to_owned());
        Ok(())
    }

    fn statement(
        &mut self,
        line: u32,
        text: &str,
        name: &Word,
        rest: Vec<Word>,
    ) -> Result<Statement> {
        let known = grammar_of(&name.text).filter(|_| name.key.is_none());
        let Some(grammar) = known else {
            let message = format!(
                "unknown statement `{}`; allowed: {}",
                name.shown(),
                grammar::names()
            );
            return Err(ScriptError::new(line, name.column, message));
        };
        let end_column = u32::try_from(text.trim_end().chars().count()).unwrap_or(u32::MAX);
        let mut arguments = Arguments::new(grammar, line, end_column + 1, rest);
        let statement = match grammar.name {
            "levels" => self.levels(&mut arguments)?,
            "hosts" => self.hosts(&mut arguments)?,
            "queues" => {
                let (text, before) = self.document(&mut arguments)?;
                Statement::Queues(documents::read(&text, before)?)
            }
            "topology" => {
                let (text, before) = self.document(&mut arguments)?;
                let topology: std::sync::Arc<muster_model::topology::Topology> =
                    documents::read(&text, before)?;
                self.above.clone_from(&topology.above);
                self.inside.clone_from(&topology.inside);
                Statement::Topology(topology)
            }
            "repeat" => self.repeat(&mut arguments)?,
            "end" => {
                let message = "`end` without a `repeat` before it";
                return Err(arguments.fail(name.column, message));
            }
            other => simple(other, &mut arguments)?,
        };
        arguments.finish()?;
        Ok(statement)
    }

    fn levels(&mut self, arguments: &mut Arguments) -> Result<Statement> {
        self.above = arguments.option_or("above", Vec::new(), values::list)?;
        self.inside = arguments.option_or("inside", Vec::new(), values::list)?;
        Ok(Statement::Levels {
            above: self.above.clone(),
            inside: self.inside.clone(),
        })
    }

    fn hosts(&self, arguments: &mut Arguments) -> Result<Statement> {
        let reported = arguments.flag("reported");
        let place = arguments.options_named(&self.above);
        let named = place.iter().flatten().count();
        if named > 0 && named < place.len() {
            let message = format!(
                "hosts in a cell must name a cell on every level: {}",
                self.above.join(", ")
            );
            let column = place.iter().flatten().map(|word| word.column).min();
            return Err(arguments.fail(column.unwrap_or(1), &message));
        }
        let mut inside = Vec::new();
        let sizes = arguments.options_named(&self.inside);
        for (level, word) in self.inside.iter().zip(sizes) {
            if let Some(word) = word {
                inside.push((level.clone(), arguments.read(&word, values::sizes)?));
            }
        }
        let ordinary = testing::host(1, 0);
        let model = testing::host(1, 1).gpus.remove(0).model;
        Ok(Statement::Hosts(HostsSpec {
            count: arguments.value("the number of hosts", values::count)?,
            name: arguments.option_or("name", "n".to_owned(), values::text)?,
            gpus: arguments.option_or("gpus", 8, values::count)?,
            model: arguments.option_or("model", model, values::text)?,
            cpus: arguments.option_or("cpus", ordinary.cpus_milli / 1_000, values::count)?,
            memory_gib: arguments.option_or(
                "memory",
                ordinary.memory_mib / 1_024,
                values::large_count,
            )?,
            place: place.into_iter().flatten().map(|word| word.text).collect(),
            inside,
            reported,
        }))
    }

    /// A document from a file or from the indented lines below, and the number of the line before its
    /// first.
    fn document(&mut self, arguments: &mut Arguments) -> Result<(String, u32)> {
        if let Some(file) = arguments.optional() {
            let read = self.files.read(&file.text);
            let text = read.map_err(|error| {
                arguments.fail(file.column, &format!("`{}`: {error}", file.text))
            })?;
            return Ok((text, 0));
        }
        let mut text = String::new();
        while let Some((_, line)) = self.lines.get(self.next) {
            let indented = line.starts_with(INDENT);
            if !indented && !line.trim().is_empty() {
                break;
            }
            text.push_str(line);
            text.push('\n');
            self.next += 1;
        }
        // Blank lines below a document are not part of it: a recorded result directly follows its step.
        while text.ends_with("\n\n") {
            text.pop();
            self.next -= 1;
        }
        Ok((text, arguments.line()))
    }

    fn repeat(&mut self, arguments: &mut Arguments) -> Result<Statement> {
        let count = arguments.required("the number of rounds")?;
        let rounds = arguments.read(&count, values::count)?;
        if self.repeating {
            return Err(arguments.fail(count.column, "a repeat must not contain another repeat"));
        }
        if rounds > ROUNDS_MAX {
            let message = format!("{rounds} is over the limit of {ROUNDS_MAX} (ROUNDS_MAX)");
            return Err(arguments.fail(count.column, &message));
        }
        let every_ms = arguments.option_or("every", 0, values::duration)?;
        let body = self.lines[self.next..].iter();
        let length = body
            .clone()
            .position(|(_, line)| line.trim() == "end")
            .ok_or_else(|| arguments.fail(count.column, "its `end` is missing"))?;
        let body: Vec<(u32, String)> = body.take(length).cloned().collect();
        self.next += length + 1;
        let rounds = (1..=rounds).map(|round| self.round(&body, round));
        Ok(Statement::Repeat {
            rounds: rounds.collect::<Result<_>>()?,
            every_ms,
        })
    }

    fn round(&self, body: &[(u32, String)], round: u32) -> Result<Vec<Step>> {
        let replaced = |text: &String| text.replace(ROUND, &round.to_string());
        let mut parser = Parser {
            files: self.files,
            lines: (body.iter().map(|(line, text)| (*line, replaced(text)))).collect(),
            next: 0,
            above: self.above.clone(),
            inside: self.inside.clone(),
            repeating: true,
        };
        parser.steps()
    }
}

/// Whether a step is a document with a result below: without the result, any following indented line would
/// belong to it.
fn has_result_below_document(step: &Step) -> bool {
    let is_document = matches!(
        step.statement,
        Statement::Queues(_) | Statement::Topology(_)
    );
    is_document && !step.recorded.is_empty()
}

/// Parses statements that need only their own words.
fn simple(name: &str, arguments: &mut Arguments) -> Result<Statement> {
    let job = |arguments: &mut Arguments| arguments.value("the job", values::text);
    Ok(match name {
        "submit" => Statement::Submit(submission::parse(arguments)?),
        "cancel" => Statement::Cancel {
            job: job(arguments)?,
        },
        "finish" => Statement::End(ending(arguments, 0)?),
        "fail" => Statement::End(ending(arguments, 1)?),
        "checkpoint" => Statement::Checkpoint {
            job: job(arguments)?,
            step: arguments.option("step", values::large_count)?,
        },
        "bad" | "good" | "suspect" => turn(name, arguments)?,
        "block" | "drain" => block(name == "drain", arguments)?,
        "unblock" => Statement::Unblock {
            planned: arguments.flag("planned"),
            target: target(arguments)?,
        },
        "advance" => Statement::Advance {
            span_ms: arguments.value("the length of time", values::duration)?,
        },
        "workers" => Statement::Workers {
            obey: one_of(arguments, "obey", "hold")?,
        },
        "planner" => Statement::Planner {
            auto: one_of(arguments, "auto", "hold")?,
        },
        "plan" => Statement::Plan {
            once: arguments.flag("once"),
        },
        "start" => Statement::Start {
            job: job(arguments)?,
        },
        "stopped" => Statement::Stopped {
            job: job(arguments)?,
        },
        "leader" => Statement::Leader,
        "restart" => Statement::Restart,
        "every_cut" => Statement::EveryCut,
        "expect" => Statement::Expect(expectation::parse(arguments)?),
        "show" => Statement::Show(match arguments.optional() {
            None => Shown::All,
            Some(word) => match word.text.as_str() {
                "hosts" => Shown::Hosts,
                "queues" => Shown::Queues,
                "jobs" => Shown::Jobs,
                _ => Shown::Job(word.text),
            },
        }),
        _ => Statement::Explain {
            job: job(arguments)?,
        },
    })
}

fn ending(arguments: &mut Arguments, code: i32) -> Result<TaskEnd> {
    Ok(TaskEnd {
        job: arguments.value("the job", values::text)?,
        task: arguments.option("task", values::count)?,
        code: if code == 0 {
            0
        } else {
            arguments.option_or("code", code, values::integer)?
        },
    })
}

fn target(arguments: &mut Arguments) -> Result<Target> {
    arguments.value("the host or GPU", values::target)
}

fn turn(name: &str, arguments: &mut Arguments) -> Result<Statement> {
    let word = arguments.required("the host or GPU")?;
    let target = arguments.read(&word, values::target)?;
    let turn = match name {
        "good" => HealthChange::Good,
        "suspect" if matches!(target, Target::Gpu(_)) => {
            return Err(arguments.fail(
                word.column,
                "a GPU is either good or bad; suspect applies to hosts",
            ));
        }
        "suspect" => HealthChange::Suspect,
        _ => HealthChange::Bad {
            signal: arguments
                .optional()
                .map_or_else(|| SIGNAL.to_owned(), |word| word.text),
        },
    };
    Ok(Statement::Turn { target, turn })
}

fn block(drain: bool, arguments: &mut Arguments) -> Result<Statement> {
    let drain_ms = match drain {
        true => Some(arguments.option_or("within", 0, values::duration)?),
        false => None,
    };
    let in_ms = arguments.option("in", values::duration)?;
    // Without a planned block, a notice remains unread, which is an error.
    let planned = match in_ms {
        Some(in_ms) => Some(Ahead {
            in_ms,
            notice_ms: arguments.option_or(
                "notice",
                Planned::NOTICE_MS_DEFAULT,
                values::duration,
            )?,
        }),
        None => None,
    };
    Ok(Statement::Block(Blocking {
        target: target(arguments)?,
        reason: arguments.option_or("reason", REASON.to_owned(), values::text)?,
        planned,
        for_ms: arguments.option("for", values::duration)?,
        drain_ms,
    }))
}

/// Parses one of two words: true for the first.
fn one_of(arguments: &mut Arguments, first: &str, second: &str) -> Result<bool> {
    let word = arguments.required(&format!("`{first}` or `{second}`"))?;
    if word.text == first || word.text == second {
        return Ok(word.text == first);
    }
    let message = format!("`{}` is neither `{first}` nor `{second}`", word.text);
    Err(arguments.fail(word.column, &message))
}
