//! Options of a role, derived from the schema of its settings.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::settings::{FIRST_VERSION, Settings};

/// One option of a role.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingsOption {
    /// Name with those of the enclosing tables: `raft.heartbeat_ms`.
    pub key: String,
    /// Type of its values.
    pub kind: Kind,
    /// Default value; null: unset.
    pub default: Value,
    /// Meaning of the option.
    pub text: String,
    /// Version of its introduction.
    pub since: String,
    /// Whether a change takes effect on SIGHUP.
    pub reloads: bool,
    /// The environment variable.
    pub variable: String,
    /// The flag, without dashes.
    pub flag: String,
    /// A second name of the flag.
    pub alias: Option<String>,
    /// Whether it may be unset, by an empty text.
    pub can_be_unset: bool,
}

/// Type of an option's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// True or false.
    Truth,
    /// A whole number, 0 or more.
    Number,
    /// A text.
    Text,
    /// One of these keywords.
    Keyword(Vec<String>),
    /// A list of texts.
    Texts,
    /// Texts by name.
    Map,
    /// Anything else, in TOML syntax.
    Other,
}

impl Kind {
    /// Description of the type: "a whole number".
    #[must_use]
    pub fn description(&self) -> String {
        match self {
            Self::Truth => "true or false".to_owned(),
            Self::Number => "a whole number, 0 or more".to_owned(),
            Self::Text => "a text".to_owned(),
            Self::Keyword(keywords) => format!("one of {}", keywords.join(", ")),
            Self::Texts => "a list of texts".to_owned(),
            Self::Map => "a table of texts".to_owned(),
            Self::Other => "a table or a list".to_owned(),
        }
    }

    /// Whether a value may be of this type, as far as possible without parsing it as the option's type.
    pub(crate) fn admits(&self, value: &Value) -> bool {
        match self {
            Self::Truth => value.is_boolean(),
            Self::Number => value.is_u64(),
            Self::Text => value.is_string(),
            Self::Keyword(keywords) => keywords
                .iter()
                .any(|keyword| value.as_str() == Some(keyword)),
            Self::Texts => value
                .as_array()
                .is_some_and(|items| items.iter().all(Value::is_string)),
            Self::Map => value.is_object(),
            Self::Other => true,
        }
    }
}

/// All options of a role, by key.
#[must_use]
pub fn options<S: Settings>() -> Vec<SettingsOption> {
    let generator = SchemaSettings::default()
        .with(|settings| settings.inline_subschemas = true)
        .into_generator();
    let schema = generator.into_root_schema_for::<S>().to_value();
    let defaults = defaults::<S>();
    let mut found = Vec::new();
    collect(S::ROLE, "", &schema, &defaults, &mut found);
    found
}

/// The default settings as a tree.
///
/// # Panics
/// If they cannot be serialized as JSON; the option test of every role would fail then.
pub(crate) fn defaults<S: Settings>() -> Value {
    serde_json::to_value(S::default()).expect("settings are maps, lists, texts and numbers")
}

fn collect(
    role: &str,
    key: &str,
    schema: &Value,
    default: &Value,
    found: &mut Vec<SettingsOption>,
) {
    let Some(fields) = fields(schema) else {
        found.push(SettingsOption::new(role, key, schema, default));
        return;
    };
    for (name, field) in fields {
        let key = if key.is_empty() {
            name.clone()
        } else {
            format!("{key}.{name}")
        };
        collect(
            role,
            &key,
            field,
            default.get(name).unwrap_or(&Value::Null),
            found,
        );
    }
}

/// The fields of a table of options.
fn fields(schema: &Value) -> Option<&Map<String, Value>> {
    present(schema).get("properties")?.as_object()
}

/// Schema of the value inside an optional one.
fn present(schema: &Value) -> &Value {
    let either = schema.get("anyOf").and_then(Value::as_array);
    let present = either.and_then(|either| either.iter().find(|one| one["type"] != "null"));
    present.unwrap_or(schema)
}

impl SettingsOption {
    fn new(role: &str, key: &str, schema: &Value, default: &Value) -> Self {
        let attribute = |name: &str| schema.get(name).and_then(Value::as_str);
        let text = attribute("description").unwrap_or_default();
        let flat = key.replace('.', "_");
        let variable = format!("MUSTER_{role}_{flat}").to_uppercase();
        Self {
            key: key.to_owned(),
            kind: kind(present(schema)),
            default: default.clone(),
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
            since: attribute("x-since").unwrap_or(FIRST_VERSION).to_owned(),
            reloads: schema.get("x-reload") == Some(&Value::Bool(true)),
            variable: attribute("x-variable").map_or(variable, str::to_owned),
            flag: attribute("x-flag").map_or_else(|| flat.replace('_', "-"), str::to_owned),
            alias: attribute("x-alias").map(str::to_owned),
            can_be_unset: default.is_null() || may_be_null(schema),
        }
    }
}

impl SettingsOption {
    /// Its value in a tree of settings.
    pub(crate) fn of<'a>(&self, tree: &'a Value) -> Option<&'a Value> {
        let path = format!("/{}", self.key.replace('.', "/"));
        tree.pointer(&path).filter(|value| !value.is_null())
    }
}

fn may_be_null(schema: &Value) -> bool {
    schema["type"]
        .as_array()
        .is_some_and(|names| names.iter().any(|name| name == "null"))
}

fn kind(schema: &Value) -> Kind {
    if let Some(keywords) = keywords(schema) {
        return Kind::Keyword(keywords);
    }
    match type_of(schema) {
        Some("boolean") => Kind::Truth,
        Some("integer") => Kind::Number,
        Some("string") => Kind::Text,
        Some("array") if type_of(&schema["items"]) == Some("string") => Kind::Texts,
        Some("object") => Kind::Map,
        _ => Kind::Other,
    }
}

/// The type; of several, the one that is not null.
fn type_of(schema: &Value) -> Option<&str> {
    match &schema["type"] {
        Value::String(name) => Some(name),
        Value::Array(names) => names
            .iter()
            .filter_map(Value::as_str)
            .find(|name| *name != "null"),
        _ => None,
    }
}

/// The keywords of an enumeration without data.
fn keywords(schema: &Value) -> Option<Vec<String>> {
    let keyword = |value: &Value| value.as_str().map(str::to_owned);
    if let Some(Value::Array(values)) = schema.get("enum") {
        return values.iter().map(keyword).collect();
    }
    let Some(Value::Array(variants)) = schema.get("oneOf") else {
        return None;
    };
    variants
        .iter()
        .map(|variant| variant.get("const").and_then(keyword))
        .collect()
}
