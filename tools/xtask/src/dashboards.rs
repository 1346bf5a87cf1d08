//! Generator of Grafana's dashboards from a short description.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};

/// Path of the description, relative to the workspace.
pub(crate) const SOURCE: &str = "deploy/grafana/dashboards.toml";
/// Folder of the dashboards.
const FOLDER: &str = "deploy/grafana/dashboards";
/// Columns of Grafana's grid.
const COLUMNS: u32 = 24;
/// Default width of a panel in columns.
const WIDTH: u32 = 12;
/// Height in rows of a time series panel, and of a single-value panel.
const HEIGHT: u32 = 8;
const STAT_HEIGHT: u32 = 4;
const HEADING_HEIGHT: u32 = 1;
/// Fill opacity below the lines of a stack, in percent.
const STACK_OPACITY: u32 = 60;
/// Query step of annotations: with Grafana's default of a minute, lines appear up to that late.
const ANNOTATION_STEP: &str = "10s";
/// Schema version of Grafana's format.
const SCHEMA_VERSION: u32 = 39;

/// The whole description.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    /// Annotations on all dashboards.
    annotation: Vec<Annotation>,
    /// Colours of series by name, grouped into named sets.
    colors: BTreeMap<String, Colors>,
    dashboard: Vec<Dashboard>,
}

type Colors = BTreeMap<String, String>;

/// Events that are marked by a line over all panels.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Annotation {
    title: String,
    /// Text of an annotation, with the labels of its series.
    text: String,
    color: String,
    /// Query that returns a value when the event happens.
    query: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dashboard {
    /// File name and id.
    name: String,
    title: String,
    /// Whether a queue can be chosen.
    #[serde(default)]
    queue: bool,
    /// Whether hosts can be chosen.
    #[serde(default)]
    host: bool,
    panel: Vec<Panel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Panel {
    title: String,
    /// Heading above the panel.
    section: Option<String>,
    #[serde(default)]
    kind: Kind,
    unit: Option<String>,
    width: Option<u32>,
    /// Upper end of the axis.
    max: Option<f64>,
    /// Whether series are stacked, because their sum is meaningful.
    #[serde(default)]
    stack: bool,
    /// The colour set of its series.
    colors: Option<String>,
    /// Threshold from which a value is red; it is green below. Without it the value has no status colour.
    bad_from: Option<f64>,
    /// Whether the panel shows the series' name instead of its value.
    #[serde(default)]
    names: bool,
    /// Value mappings of a state timeline: value, text, colour.
    #[serde(default)]
    states: Vec<(String, String, String)>,
    /// Labels shown as table columns, with their titles; each query adds one more.
    #[serde(default)]
    columns: Vec<(String, String)>,
    /// Legend and expression.
    queries: Vec<(String, String)>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    #[default]
    Timeseries,
    Stat,
    Table,
    StateTimeline,
}

/// Files of all dashboards, by path, with their text.
pub(crate) fn render(source: &str) -> Result<Vec<(String, String)>> {
    let description: Description = toml::from_str(source).context(SOURCE)?;
    let files = description.dashboard.iter().map(|dashboard| {
        let rendered = dashboard.render(&description)?;
        let text = serde_json::to_string_pretty(&rendered)?;
        Ok((format!("{FOLDER}/{}.json", dashboard.name), text + "\n"))
    });
    files.collect()
}

/// Writes all dashboards.
pub(crate) fn write(root: &Path) -> Result<()> {
    let source = fs::read_to_string(root.join(SOURCE)).context(SOURCE)?;
    for (path, text) in render(&source)? {
        fs::write(root.join(&path), text).context(path)?;
    }
    Ok(())
}

impl Dashboard {
    fn render(&self, all: &Description) -> Result<Value> {
        let annotations: Vec<Value> = all.annotation.iter().map(Annotation::render).collect();
        let datasource = json!({
            "name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"
        });
        let mut variables = vec![datasource];
        if self.queue {
            let all = "label_values(muster_scheduler_queue_live_jobs, queue)";
            variables.push(choice("queue", "Queue", all));
        }
        if self.host {
            let all = "label_values(muster_worker_session_open, instance)";
            variables.push(choice("host", "Host", all));
        }
        Ok(json!({
            "uid": format!("muster-{}", self.name),
            "title": self.title,
            "tags": ["muster"],
            "schemaVersion": SCHEMA_VERSION,
            "refresh": "10s",
            "time": {"from": "now-1h", "to": "now"},
            "links": [{"type": "dashboards", "title": "Muster", "tags": ["muster"], "asDropdown": true}],
            "annotations": {"list": annotations},
            "templating": {"list": variables},
            "panels": self.panels(&all.colors)?,
        }))
    }

    /// The panels from left to right, as many per row as fit.
    fn panels(&self, colors: &BTreeMap<String, Colors>) -> Result<Vec<Value>> {
        let (mut x, mut y, mut row_height) = (0, 0, 0);
        let mut panels = Vec::new();
        for panel in &self.panel {
            let width = panel.width.unwrap_or(WIDTH);
            if x + width > COLUMNS || panel.section.is_some() {
                (x, y, row_height) = (0, y + row_height, 0);
            }
            if let Some(title) = &panel.section {
                panels.push(heading(panels.len() + 1, title, y));
                y += HEADING_HEIGHT;
            }
            let place = json!({"x": x, "y": y, "w": width, "h": panel.height()});
            panels.push(panel.render(panels.len() + 1, &place, colors)?);
            row_height = row_height.max(panel.height());
            x += width;
        }
        Ok(panels)
    }
}

/// A heading over all columns.
fn heading(id: usize, title: &str, y: u32) -> Value {
    let place = json!({"x": 0, "y": y, "w": COLUMNS, "h": HEADING_HEIGHT});
    json!({"id": id, "type": "row", "title": title, "gridPos": place, "collapsed": false, "panels": [], "targets": []})
}

/// A variable with a selection of values, or all.
fn choice(name: &str, label: &str, query: &str) -> Value {
    json!({
        "name": name, "type": "query", "label": label, "datasource": {"uid": "${datasource}"},
        "query": query,
        "includeAll": true, "allValue": ".*", "multi": true, "refresh": 2,
        "current": {"text": "All", "value": "$__all"},
    })
}

impl Annotation {
    fn render(&self) -> Value {
        json!({
            "name": self.title,
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "enable": true,
            "iconColor": self.color,
            "expr": self.query,
            "step": ANNOTATION_STEP,
            "titleFormat": self.title,
            "textFormat": self.text,
        })
    }
}

impl Panel {
    fn height(&self) -> u32 {
        if self.kind == Kind::Stat {
            STAT_HEIGHT
        } else {
            HEIGHT
        }
    }

    fn render(&self, id: usize, place: &Value, colors: &BTreeMap<String, Colors>) -> Result<Value> {
        let kind = match self.kind {
            Kind::Timeseries => "timeseries",
            Kind::Stat => "stat",
            Kind::Table => "table",
            Kind::StateTimeline => "state-timeline",
        };
        Ok(json!({
            "id": id,
            "type": kind,
            "title": self.title,
            "gridPos": place,
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "fieldConfig": {"defaults": self.defaults(), "overrides": self.overrides(colors)?},
            "options": if self.names { json!({"textMode": "name"}) } else { json!({}) },
            "transformations": self.transformations(),
            "targets": self.targets(),
        }))
    }

    fn targets(&self) -> Vec<Value> {
        let is_moment = matches!(self.kind, Kind::Stat | Kind::Table);
        let is_table = self.kind == Kind::Table;
        let format = if is_table { "table" } else { "time_series" };
        let target = |(reference, (legend, expression)): (char, &(String, String))| {
            json!({
                "refId": reference, "expr": expression, "legendFormat": legend,
                "instant": is_moment, "range": !is_moment, "format": format,
            })
        };
        ('A'..).zip(&self.queries).map(target).collect()
    }

    /// Settings common to all its series.
    fn defaults(&self) -> Value {
        let mut steps = vec![json!({"value": null, "color": "text"})];
        if let Some(bad) = self.bad_from {
            steps = vec![
                json!({"value": null, "color": "green"}),
                json!({"value": bad, "color": "red"}),
            ];
        }
        let mut defaults = json!({
            "unit": self.unit.as_deref().unwrap_or("short"), "min": 0,
            "thresholds": {"mode": "absolute", "steps": steps},
        });
        if let Some(max) = self.max {
            defaults["max"] = max.into();
        }
        if self.stack {
            defaults["custom"] =
                json!({"fillOpacity": STACK_OPACITY, "stacking": {"mode": "normal", "group": "A"}});
        }
        if !self.states.is_empty() {
            let states = self
                .states
                .iter()
                .map(|(value, text, color)| (value.clone(), json!({"text": text, "color": color})));
            let options: serde_json::Map<String, Value> = states.collect();
            defaults["mappings"] = json!([{"type": "value", "options": options}]);
        }
        defaults
    }

    /// Colours of series with a fixed meaning.
    fn overrides(&self, colors: &BTreeMap<String, Colors>) -> Result<Vec<Value>> {
        let Some(name) = &self.colors else {
            return Ok(Vec::new());
        };
        let set = colors
            .get(name)
            .with_context(|| format!("{}: there are no colors.{name}", self.title))?;
        let one = |(series, color): (&String, &String)| {
            json!({
                "matcher": {"id": "byName", "options": series},
                "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": color}}],
            })
        };
        Ok(set.iter().map(one).collect())
    }

    /// Merges all queries into one table, with only the listed columns.
    fn transformations(&self) -> Vec<Value> {
        if self.kind != Kind::Table {
            return Vec::new();
        }
        let labels = self.columns.iter().cloned();
        // Grafana's column names for the value of a single query, and of several.
        let value = |reference: char| match self.queries.len() {
            1 => "Value".to_owned(),
            _ => format!("Value #{reference}"),
        };
        let values = ('A'..)
            .zip(&self.queries)
            .map(|(reference, (title, _))| (value(reference), title.clone()));
        let columns: Vec<(String, String)> = labels.chain(values).collect();
        let order: BTreeMap<&str, usize> = columns
            .iter()
            .map(|(field, _)| field.as_str())
            .zip(0..)
            .collect();
        let titles: BTreeMap<&str, &str> = columns
            .iter()
            .map(|(field, title)| (field.as_str(), title.as_str()))
            .collect();
        vec![
            json!({"id": "merge", "options": {}}),
            json!({"id": "organize", "options": {
                "excludeByName": {"Time": true}, "indexByName": order, "renameByName": titles
            }}),
        ]
    }
}
