//! Grafana's dashboards, from the short description of what they show.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};

/// The description, from the root of the workspace.
pub(crate) const SOURCE: &str = "deploy/grafana/dashboards.toml";
/// Where the dashboards lie.
const FOLDER: &str = "deploy/grafana/dashboards";
/// Columns of Grafana's grid.
const COLUMNS: u32 = 24;
/// Columns of a panel that does not say.
const WIDTH: u32 = 12;
/// Rows of a panel that shows a course, and of one that shows a figure.
const HEIGHT: u32 = 8;
const STAT_HEIGHT: u32 = 4;
/// The version of Grafana's format that is written.
const SCHEMA_VERSION: u32 = 39;

/// The whole description.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    /// What is drawn on all dashboards.
    annotation: Vec<Annotation>,
    dashboard: Vec<Dashboard>,
}

/// Moments that are worth a line over all panels.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Annotation {
    title: String,
    /// What is told of one, with the labels of its series.
    text: String,
    /// Gives something when it happens.
    query: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dashboard {
    /// File and id.
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
    #[serde(default)]
    kind: Kind,
    #[serde(default)]
    unit: Option<String>,
    #[serde(default)]
    width: Option<u32>,
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
}

/// Files of all dashboards, by path, with their text.
pub(crate) fn render(source: &str) -> Result<Vec<(String, String)>> {
    let description: Description = toml::from_str(source).context(SOURCE)?;
    let files = description.dashboard.iter().map(|dashboard| {
        let rendered = dashboard.render(&description.annotation);
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
    fn render(&self, annotations: &[Annotation]) -> Value {
        let annotations: Vec<Value> = annotations.iter().map(Annotation::render).collect();
        let datasource = json!({"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"});
        let mut variables = vec![datasource];
        if self.queue {
            let all = "label_values(muster_scheduler_queue_live_jobs, queue)";
            variables.push(choice("queue", "Queue", all));
        }
        if self.host {
            let all = "label_values(muster_worker_session_open, instance)";
            variables.push(choice("host", "Host", all));
        }
        json!({
            "uid": format!("muster-{}", self.name),
            "title": self.title,
            "tags": ["muster"],
            "schemaVersion": SCHEMA_VERSION,
            "refresh": "10s",
            "time": {"from": "now-1h", "to": "now"},
            "links": [{"type": "dashboards", "title": "Muster", "tags": ["muster"], "asDropdown": true}],
            "annotations": {"list": annotations},
            "templating": {"list": variables},
            "panels": self.panels(),
        })
    }

    /// The panels from left to right, as many in a row as fit.
    fn panels(&self) -> Vec<Value> {
        let (mut x, mut y, mut row_height) = (0, 0, 0);
        let mut panels = Vec::new();
        for (id, panel) in (1..).zip(&self.panel) {
            let width = panel.width.unwrap_or(WIDTH);
            if x + width > COLUMNS {
                (x, y, row_height) = (0, y + row_height, 0);
            }
            let place = json!({"x": x, "y": y, "w": width, "h": panel.height()});
            panels.push(panel.render(id, &place));
            row_height = row_height.max(panel.height());
            x += width;
        }
        panels
    }
}

/// A variable of which some values are chosen, or all.
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
            "iconColor": "orange",
            "expr": self.query,
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

    fn render(&self, id: u32, place: &Value) -> Value {
        let kind = match self.kind {
            Kind::Timeseries => "timeseries",
            Kind::Stat => "stat",
            Kind::Table => "table",
        };
        let is_moment = self.kind != Kind::Timeseries;
        let targets = ('A'..)
            .zip(&self.queries)
            .map(|(reference, (legend, expression))| {
                let format = if self.kind == Kind::Table {
                    "table"
                } else {
                    "time_series"
                };
                json!({
                    "refId": reference, "expr": expression, "legendFormat": legend,
                    "instant": is_moment, "range": !is_moment, "format": format,
                })
            });
        json!({
            "id": id,
            "type": kind,
            "title": self.title,
            "gridPos": place,
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "fieldConfig": {"defaults": {"unit": self.unit.as_deref().unwrap_or("short"), "min": 0}, "overrides": []},
            "targets": targets.collect::<Vec<_>>(),
        })
    }
}
