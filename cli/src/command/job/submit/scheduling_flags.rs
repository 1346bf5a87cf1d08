//! Flags for scheduling beyond resources.

use std::time::Duration;

use clap::Args;
use muster_proto::v1;

use crate::parse;
use muster_job_file::PackingFile;

/// Scheduling requirements beyond resources.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Scheduling")]
pub(super) struct SchedulingFlags {
    /// Use idle resources only, and be preempted first
    #[arg(long)]
    opportunistic: bool,
    /// Continue outside of the queue's cells, as opportunistic work, when others take them
    #[arg(long)]
    lazy_preemption: bool,
    /// Stop an attempt permanently after this time; used by backfill
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    time_limit: Option<Duration>,
    /// Release a gang's resources if not all its tasks run within this time
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, requires = "gang")]
    assembly_limit: Option<Duration>,
    /// Wait for one cell of this level (rack, host, socket, ...) that holds all tasks
    #[arg(long, value_name = "LEVEL", conflicts_with = "prefer_within")]
    within: Option<String>,
    /// Prefer one cell of this level that holds all tasks
    #[arg(long, value_name = "LEVEL")]
    prefer_within: Option<String>,
    /// Host preference (pack)
    #[arg(long, value_name = "HOW")]
    packing: Option<PackingFile>,
    /// Only on these hosts, comma separated
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    on_hosts: Vec<String>,
    /// Never on these hosts, comma separated
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    not_on_hosts: Vec<String>,
    /// Only in the queue's pinned cell of this name
    #[arg(long, value_name = "NAME")]
    pinned_cell: Option<String>,
    /// Start a gang with at least this many tasks (all)
    #[arg(long, value_name = "COUNT", requires = "gang")]
    tasks_min: Option<u32>,
    /// Only on these GPUs, comma separated
    #[arg(long, value_name = "UUIDS", value_delimiter = ',')]
    on_gpus: Vec<String>,
}

impl SchedulingFlags {
    /// Each flag, and whether it is given.
    pub(super) fn given(&self) -> [(&'static str, bool); 12] {
        [
            ("--opportunistic", self.opportunistic),
            ("--lazy-preemption", self.lazy_preemption),
            ("--time-limit", self.time_limit.is_some()),
            ("--assembly-limit", self.assembly_limit.is_some()),
            ("--within", self.within.is_some()),
            ("--prefer-within", self.prefer_within.is_some()),
            ("--packing", self.packing.is_some()),
            ("--on-hosts", !self.on_hosts.is_empty()),
            ("--not-on-hosts", !self.not_on_hosts.is_empty()),
            ("--pinned-cell", self.pinned_cell.is_some()),
            ("--tasks-min", self.tasks_min.is_some()),
            ("--on-gpus", !self.on_gpus.is_empty()),
        ]
    }

    /// Requirements of the whole job; a gang shares one cell.
    pub(super) fn scheduling(&self, gang: bool) -> v1::Scheduling {
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let packing = self.packing.map_or(v1::Packing::Unspecified, Into::into);
        v1::Scheduling {
            opportunistic: self.opportunistic,
            lazy_preemption: self.lazy_preemption,
            run_time_ms_max: self.time_limit.map(ms),
            assembly_ms_max: self.assembly_limit.map(ms),
            within: self.cell().filter(|_| gang),
            packing: packing.into(),
            hosts: self.on_hosts.clone(),
            hosts_excluded: self.not_on_hosts.clone(),
            pinned_cell: self.pinned_cell.clone(),
        }
    }

    /// Requirements of the only group; independently placed tasks have a cell each.
    pub(super) fn layout(&self, gang: bool) -> v1::Layout {
        v1::Layout {
            count_min: self.tasks_min,
            within: self.cell().filter(|_| !gang),
            within_tasks: None,
            gpus: self.on_gpus.clone(),
        }
    }

    fn cell(&self) -> Option<v1::Within> {
        let cell = |level: &String, required| v1::Within {
            level: level.clone(),
            required: Some(required),
        };
        let required = self.within.as_ref().map(|level| cell(level, true));
        required.or_else(|| self.prefer_within.as_ref().map(|level| cell(level, false)))
    }
}

/// The flag that sets a field of the specification.
pub(super) fn flag_of(field: &str) -> Option<&'static str> {
    let flags = [
        ("scheduling.run_time_ms_max", "--time-limit"),
        ("scheduling.assembly_ms_max", "--assembly-limit"),
        ("scheduling.within", "--within"),
        ("scheduling.packing", "--packing"),
        ("scheduling.hosts_excluded", "--not-on-hosts"),
        ("scheduling.hosts", "--on-hosts"),
        ("scheduling.pinned_cell", "--pinned-cell"),
        ("scheduling.opportunistic", "--opportunistic"),
        ("scheduling.lazy_preemption", "--lazy-preemption"),
        ("groups[0].layout.count_min", "--tasks-min"),
        ("groups[0].layout.within", "--within"),
        ("groups[0].layout.gpus", "--on-gpus"),
    ];
    let flag = flags.iter().find(|(name, _)| field.starts_with(name));
    flag.map(|(_, flag)| *flag)
}
