//! Assembly of settings: defaults, file, variables, flags.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use muster_text::nearest;
use serde_json::{Map, Value};

use crate::settings::Settings;
use crate::settings::option::{SettingsOption, defaults, options};
use crate::settings::position::{Positions, position};
use crate::settings::problem::{Problem, Problems, hint};
use crate::settings::value::{OptionValue, Origin};

/// Settings, with the origin of each value.
#[derive(Clone, Debug)]
pub struct Loaded<S> {
    /// The settings.
    pub settings: S,
    /// Origins of all options that differ from their default.
    pub origins: BTreeMap<String, Origin>,
    pub(crate) tree: Value,
}

impl<S: Settings> Loaded<S> {
    /// Keys of all options that differ from their default.
    #[must_use]
    pub fn changed(&self) -> Vec<String> {
        let defaults = defaults::<S>();
        let is_changed = |option: &SettingsOption| option.of(&self.tree) != option.of(&defaults);
        let options = options::<S>().into_iter().filter(is_changed);
        options.map(|option| option.key).collect()
    }
}

/// Reads settings: values of the file override defaults, and those of `given` override the file's, later
/// ones override earlier.
///
/// A file named `.json` holds the same tree as JSON, which is for programs; any other is TOML.
///
/// # Errors
/// All problems found: an unreadable file, unknown options, values of the wrong type, violated rules.
pub fn load<S: Settings>(
    file: Option<&Path>,
    given: &[OptionValue],
) -> Result<Loaded<S>, Problems> {
    let options = options::<S>();
    let failed = |problems| Problems {
        role: S::ROLE,
        problems,
    };
    let mut all = Vec::new();
    if let Some(file) = file {
        all = read_file(file, &options).map_err(failed)?;
    }
    all.extend_from_slice(given);
    let (mut tree, mut origins) = (defaults::<S>(), BTreeMap::new());
    for one in all {
        set(
            &mut tree,
            &one.key,
            unset_if_empty(one.value, &one.key, &options),
        );
        origins.insert(one.key, one.origin);
    }
    let settings = read_tree(&tree, &options, &origins).map_err(|problem| failed(vec![problem]))?;
    if let Some(broken) = S::broken_rule(&settings) {
        let key = broken.key.replace('[', ".").replace(']', "");
        let problem = problem_at(&key, broken.rule, &options, &origins);
        return Err(failed(vec![Problem {
            key: broken.key,
            ..problem
        }]));
    }
    Ok(Loaded {
        settings,
        origins,
        tree,
    })
}

fn read_tree<S: Settings>(
    tree: &Value,
    options: &[SettingsOption],
    origins: &BTreeMap<String, Origin>,
) -> Result<S, Problem> {
    serde_path_to_error::deserialize(tree).map_err(|error| {
        let path = error.path().to_string();
        let key = path
            .trim_end_matches(['?', '.'])
            .replace('[', ".")
            .replace(']', "");
        problem_at(&key, plain(&error.inner().to_string()), options, origins)
    })
}

/// The parser's message, with a suggestion for an unknown name.
fn plain(message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field `") else {
        return message.to_owned();
    };
    let mut names = rest.split('`');
    let name = names.next().unwrap_or_default();
    let known = names.skip(1).step_by(2);
    match nearest(name, known) {
        Some(known) => format!("there is no field `{name}`; did you mean `{known}`?"),
        None => message.to_owned(),
    }
}

/// Problem at or below an option.
fn problem_at(
    key: &str,
    message: String,
    options: &[SettingsOption],
    origins: &BTreeMap<String, Origin>,
) -> Problem {
    let option = options.iter().find(|option| holds(&option.key, key));
    let advice = option
        .filter(|option| option.key == key)
        .map_or_else(String::new, hint);
    let origin = option.and_then(|option| origins.get(&option.key));
    Problem::new(origin, key, format!("{message}{advice}"))
}

/// Whether one key is the other, or a table that contains it.
pub(crate) fn holds(around: &str, key: &str) -> bool {
    key.strip_prefix(around)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Reads the options of a file.
fn read_file(file: &Path, options: &[SettingsOption]) -> Result<Vec<OptionValue>, Vec<Problem>> {
    let name = file.display().to_string();
    let in_file = |position| Origin::File {
        file: name.clone(),
        position,
    };
    let unreadable =
        |position, message: String| vec![Problem::new(Some(&in_file(position)), "", message)];
    let text = fs::read_to_string(file)
        .map_err(|error| unreadable(None, format!("cannot be read: {error}")))?;
    let tree = if file
        .extension()
        .is_some_and(|extension| extension == "json")
    {
        serde_json::from_str(&text)
            .map_err(|error| unreadable(Some((error.line(), error.column())), error.to_string()))?
    } else {
        let parsed: Result<toml::Table, _> = toml::from_str(&text);
        let table = parsed.map_err(|error| {
            let place = error.span().map(|span| position(&text, span.start));
            unreadable(place, format!("not TOML: {}", error.message()))
        })?;
        serde_json::to_value(table).map_err(|error| unreadable(None, error.to_string()))?
    };
    let Value::Object(tree) = tree else {
        return Err(unreadable(None, "must be a table of options".to_owned()));
    };
    let positions = Positions::of(&text);
    let mut reader = Reader {
        options,
        place: |key: &str| in_file(positions.find(key)),
        given: Vec::new(),
        problems: Vec::new(),
    };
    reader.read("", &tree);
    reader.finish()
}

/// Traverses a file's tree.
struct Reader<'a, Place> {
    options: &'a [SettingsOption],
    place: Place,
    given: Vec<OptionValue>,
    problems: Vec<Problem>,
}

impl<Place: Fn(&str) -> Origin> Reader<'_, Place> {
    fn read(&mut self, around: &str, tree: &Map<String, Value>) {
        for (name, value) in tree {
            let key = if around.is_empty() {
                name.clone()
            } else {
                format!("{around}.{name}")
            };
            self.read_key(key, value);
        }
    }

    fn read_key(&mut self, key: String, value: &Value) {
        let origin = (self.place)(&key);
        if let Some(option) = self.options.iter().find(|option| option.key == key) {
            let given = OptionValue {
                key,
                value: value.clone(),
                origin,
            };
            match given.check(option) {
                Ok(()) => self.given.push(given),
                Err(problem) => self.problems.push(problem),
            }
        } else if self.options.iter().any(|option| holds(&key, &option.key)) {
            match value {
                Value::Object(tree) => self.read(&key, tree),
                Value::Null => {}
                _ => {
                    let message =
                        format!("is a table of options: write [{key}] and its options below");
                    self.problems
                        .push(Problem::new(Some(&origin), &key, message));
                }
            }
        } else {
            self.problems
                .push(Problem::unknown(&key, &origin, self.options));
        }
    }

    fn finish(mut self) -> Result<Vec<OptionValue>, Vec<Problem>> {
        if self.problems.is_empty() {
            return Ok(self.given);
        }
        self.problems.sort_by_key(|problem| match &problem.origin {
            Some(Origin::File { position, .. }) => *position,
            _ => None,
        });
        Err(self.problems)
    }
}

/// An empty text unsets an option that can be unset: TOML has no null.
fn unset_if_empty(value: Value, key: &str, options: &[SettingsOption]) -> Value {
    let option = options.iter().find(|option| option.key == key);
    if value == "" && option.is_some_and(|option| option.can_be_unset) {
        return Value::Null;
    }
    value
}

/// Sets the value at a key; missing tables are created.
fn set(tree: &mut Value, key: &str, value: Value) {
    let mut place = tree;
    for name in key.split('.') {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[name];
    }
    *place = value;
}
