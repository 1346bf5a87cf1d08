//! Cluster files `*_cluster.csv[.gz]` with one host per line; or the short form `352x8:V100`.

use std::collections::BTreeSet;
use std::path::Path;
use std::str::FromStr;

use muster_model::limits;

use crate::trace::TraceError;
use crate::trace::table::{Column, Row, Table};

const SCHEMA: [Column; 7] = [
    Column::required("node_id"),
    Column::required("gpus"),
    Column::optional("gpu_type"),
    Column::optional("cpus"),
    Column::optional("mem_mib"),
    Column::optional("rack"),
    Column::optional("pod"),
];

/// GPU model if the source names none.
const MODEL_DEFAULT: &str = "gpu";

/// One host of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceHost {
    /// Unique host name.
    pub name: String,
    /// Number of GPUs, all of one model.
    pub gpus: u32,
    /// GPU model; `gpu` if the source does not say.
    pub gpu_model: String,
    /// CPUs in thousandths.
    pub cpus_milli: Option<u32>,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
    /// Rack, the smallest enclosing cell.
    pub rack: Option<String>,
    /// Pod of the rack.
    pub pod: Option<String>,
}

/// The hosts of a cluster, in order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// One entry per host.
    pub hosts: Vec<TraceHost>,
}

/// A short form that is not `HOSTSxGPUS[:MODEL]`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` {rule}")]
pub struct InvalidShape {
    text: String,
    rule: String,
}

impl Cluster {
    /// Reads a cluster file.
    ///
    /// # Errors
    /// [`TraceError`] names the file, the line and the column.
    pub fn read(path: &Path) -> Result<Self, TraceError> {
        let mut names = BTreeSet::new();
        let mut hosts = Vec::new();
        for row in Table::open(path, &SCHEMA)? {
            let row = row?;
            let host = host(&row)?;
            if !names.insert(host.name.clone()) {
                return Err(row.wrong("node_id", "is a duplicate"));
            }
            hosts.push(host);
        }
        if hosts.is_empty() {
            return Err(TraceError::Empty {
                path: path.to_owned(),
            });
        }
        Ok(Self { hosts })
    }

    /// Equal hosts `node-0001`, `node-0002` and so on.
    #[must_use]
    pub fn uniform(hosts: u32, gpus: u32, model: &str) -> Self {
        let host = |number: u32| TraceHost {
            name: format!("node-{number:04}"),
            gpus,
            gpu_model: model.to_owned(),
            ..TraceHost::default()
        };
        Self {
            hosts: (1..=hosts).map(host).collect(),
        }
    }

    /// Total GPUs.
    #[must_use]
    pub fn gpus(&self) -> u64 {
        self.hosts.iter().map(|host| u64::from(host.gpus)).sum()
    }
}

impl FromStr for Cluster {
    type Err = InvalidShape;

    /// The short form `HOSTSxGPUS[:MODEL]`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |rule: String| InvalidShape {
            text: text.to_owned(),
            rule,
        };
        let form = || wrong("is not of the form HOSTSxGPUS[:MODEL], as in 352x8:V100".to_owned());
        let (shape, model) = text.split_once(':').unwrap_or((text, MODEL_DEFAULT));
        let (hosts, gpus) = shape.split_once('x').ok_or_else(form)?;
        let hosts: u32 = hosts.parse().map_err(|_| form())?;
        let gpus: u32 = gpus.parse().map_err(|_| form())?;
        if hosts == 0 || hosts as usize > limits::HOSTS_MAX {
            let limit = limits::HOSTS_MAX;
            return Err(wrong(format!("must have 1 to {limit} hosts (HOSTS_MAX)")));
        }
        if gpus as usize > limits::GPUS_PER_HOST_MAX {
            let limit = limits::GPUS_PER_HOST_MAX;
            return Err(wrong(format!(
                "has more than {limit} GPUs on a host (GPUS_PER_HOST_MAX)"
            )));
        }
        if model.is_empty() {
            return Err(form());
        }
        Ok(Self::uniform(hosts, gpus, model))
    }
}

fn host(row: &Row) -> Result<TraceHost, TraceError> {
    let gpus = row.number("gpus")?;
    if gpus as usize > limits::GPUS_PER_HOST_MAX {
        let limit = limits::GPUS_PER_HOST_MAX;
        let rule = format!("is over the limit of {limit} (GPUS_PER_HOST_MAX)");
        return Err(row.wrong("gpus", &rule));
    }
    let cpus_milli = match row.text("cpus") {
        "" => None,
        _ => Some(row.milli("cpus")?),
    };
    Ok(TraceHost {
        name: row.name("node_id")?,
        gpus,
        gpu_model: row
            .optional_text("gpu_type")
            .unwrap_or_else(|| MODEL_DEFAULT.to_owned()),
        cpus_milli,
        memory_mib: row.optional_number("mem_mib")?,
        rack: row.optional_text("rack"),
        pod: row.optional_text("pod"),
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_names_hosts_gpus_and_model() {
        let cluster: Cluster = "2x8:V100".parse().unwrap();
        assert_eq!(cluster.gpus(), 16);
        assert_eq!(cluster.hosts[1].name, "node-0002");
        assert_eq!(cluster.hosts[1].gpu_model, "V100");
        assert_eq!("1x4".parse::<Cluster>().unwrap().hosts[0].gpu_model, "gpu");
    }

    #[test]
    fn a_shape_that_is_none_is_refused() {
        for text in [
            "8",
            "x8",
            "2x",
            "0x8",
            "2x1000",
            "2x8:",
            "1000000x8",
            "-1x8",
        ] {
            assert!(text.parse::<Cluster>().is_err(), "{text}");
        }
    }

    #[test]
    fn all_hosts_of_the_published_clusters_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/traces");
        for (name, hosts, gpus) in [
            ("philly_cluster.csv", 552, 2_490),
            ("alibaba2023_openb_cluster.csv", 1_523, 6_212),
            ("lingjun2023_cluster.csv", 847, 6_776),
        ] {
            let path = folder.join(name);
            if !path.exists() {
                tracing::warn!(path = %path.display(), "skipped: file not found");
                continue;
            }
            let cluster = Cluster::read(&path).unwrap();
            assert_eq!(
                (cluster.hosts.len(), cluster.gpus()),
                (hosts, gpus),
                "{name}"
            );
        }
    }
}
