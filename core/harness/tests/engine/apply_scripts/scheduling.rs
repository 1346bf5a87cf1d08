//! Script commands for scheduling: queues, cells, claims and allocation bases.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::command::{
    AllocationBasis, ClaimSpec, Command, ConfigCommand, Move, Moving, Victim,
};
use muster_model::ids::{HostId, JobId, LeadershipEpoch, UnitId, UnitIndex};
use muster_model::quota::{
    Amounts, CellQuota, Defragment, Guarantee, Limits, PinnedCell, QueueConfig, QueueTree,
};
use muster_model::spec::JobSpec;
use muster_model::topology::{CellId, CellPlace, Topology};

use crate::apply_scripts::runner::{Args, Result, Runner, task_placement};

impl Runner {
    /// `configure QUEUE... [half_life=MS] [moves=MAX [in_flight=MAX]]`, each queue as `NAME` or
    /// `NAME:KEY=VALUE,...` with `gpus`, `limit`, `user_limit`, `borrow`, `preempt`, `protected`, `movable`,
    /// `live`, `weight`, `cells=LEVEL*MODEL*GPUS*COUNT`, `pinned=NAME*CELL`.
    pub(crate) fn configure(&mut self, args: &mut Args<'_>) -> Result<Command> {
        let history_half_life_ms = args.key("half_life")?;
        let moves_max = args.key("moves")?;
        let in_flight: Option<u32> = args.key("in_flight")?;
        let defragment = moves_max.map(|moves_max| Defragment {
            moves_max,
            moves_in_flight_max: in_flight.unwrap_or(moves_max),
            ..Defragment::default()
        });
        let mut queues = BTreeMap::new();
        while let Some(text) = args.optional::<String>()? {
            let (name, settings) = text.split_once(':').unwrap_or((&text, ""));
            queues.insert(name.to_owned(), queue_config(settings)?);
        }
        Ok(Command::Config(ConfigCommand::ConfigureQueues {
            request: self.request(args)?,
            author: "grace".to_owned(),
            tree: Arc::new(QueueTree {
                queues,
                history_half_life_ms,
                defragment,
            }),
        }))
    }

    /// `topology RACK=HOST+HOST...`.
    pub(crate) fn topology(&mut self, args: &mut Args<'_>) -> Result<Command> {
        let mut topology = Topology::default();
        while let Some(text) = args.optional::<String>()? {
            let (rack, hosts) = text.split_once(':').ok_or("a rack is RACK:HOST+HOST")?;
            topology.above = vec!["rack".to_owned()];
            topology.places.push(CellPlace {
                cell: vec![rack.to_owned()],
                hosts: hosts.split('+').map(str::to_owned).collect(),
            });
        }
        Ok(Command::Config(ConfigCommand::SetTopology {
            request: self.request(args)?,
            author: "grace".to_owned(),
            topology: Arc::new(topology),
        }))
    }

    /// `claim JOB [unit] at=TASK@HOST:GPU+GPU,... [moves=JOB@TASK@HOST:GPU+GPU,... gain=GPUMS]
    /// [victims=JOB,...] [supersedes=JOB,...] [expected=MS] [basis=]`.
    pub(crate) fn claim(
        &mut self,
        args: &mut Args<'_>,
        leader: LeadershipEpoch,
    ) -> Result<Command> {
        let job = self.job(args)?;
        let unit = UnitIndex(args.optional()?.unwrap_or(0));
        let at: String = args.key("at")?.ok_or("a claim needs a place: at=")?;
        let tasks: Vec<_> = at.split(',').map(task_placement).collect::<Result<_>>()?;
        let expected_at = args.key("expected")?;
        let expected_at = expected_at.map(|span_ms| self.cluster.now.after(span_ms));
        let mut victims = Vec::new();
        for name in names(args.key("victims")?) {
            let job = self.named(&name)?;
            let attempt = self.cluster.attempt(job, UnitIndex(0));
            victims.push(Victim {
                job,
                unit: UnitIndex(0),
                epoch: attempt.map_or_else(Default::default, |attempt| attempt.epoch),
            });
        }
        let moving = match args.key::<String>("moves")? {
            Some(text) => Some(Moving {
                moves: text
                    .split(',')
                    .map(|text| self.move_of(text))
                    .collect::<Result<_>>()?,
                gain_gpu_ms: args.key("gain")?.unwrap_or(0),
            }),
            None => None,
        };
        let mut supersedes = Vec::new();
        for name in names(args.key("supersedes")?) {
            supersedes.push(UnitId::new(self.named(&name)?, UnitIndex(0)));
        }
        Ok(Command::Claim(ClaimSpec {
            leader,
            job,
            unit,
            tasks: Arc::from(tasks),
            basis: allocation_basis(args)?,
            victims,
            supersedes,
            expected_at,
            moving,
        }))
    }

    /// `JOB@TASK@HOST:GPU+GPU`: a job of one task and its destination.
    fn move_of(&self, text: &str) -> Result<Move> {
        let (name, place) = text.split_once('@').ok_or("a move is JOB@TASK@HOST:GPU")?;
        let job = self.named(name)?;
        let unit = UnitIndex(0);
        let attempt = self.cluster.attempt(job, unit);
        Ok(Move {
            attempt: Victim {
                job,
                unit,
                epoch: attempt.map_or_else(Default::default, |attempt| attempt.epoch),
            },
            tasks: Arc::from([task_placement(place)?]),
        })
    }

    pub(crate) fn drop_claim(
        &mut self,
        args: &mut Args<'_>,
        leader: LeadershipEpoch,
    ) -> Result<Command> {
        Ok(Command::DropClaim {
            leader,
            job: self.job(args)?,
            unit: UnitIndex(args.optional()?.unwrap_or(0)),
            reason: "it fits elsewhere".to_owned(),
        })
    }

    pub(crate) fn stand(
        &mut self,
        args: &mut Args<'_>,
        leader: LeadershipEpoch,
    ) -> Result<Command> {
        let job = self.job(args)?;
        let unit = UnitIndex(0);
        let attempt = self.cluster.attempt(job, unit);
        let epoch = attempt.map_or_else(Default::default, |attempt| attempt.epoch);
        Ok(Command::SetAllocationBasis {
            leader,
            job,
            unit,
            epoch,
            allocation_basis: allocation_basis(args)?,
        })
    }

    fn named(&self, name: &str) -> Result<JobId> {
        let known = self.jobs.get(name).copied();
        known.ok_or_else(|| format!("no job `{name}`").into())
    }
}

/// Scheduling settings of a job: `user=`, `opportunistic=`, `lazy=`, `run_time=`, `assembly=`, `count_min=`,
/// `pinned=`.
pub(crate) fn scheduling_keys(args: &mut Args<'_>, spec: &mut JobSpec) -> Result<()> {
    spec.user = args.key_or("user", spec.user.clone())?;
    let scheduling = &mut spec.scheduling;
    scheduling.opportunistic = args.key_or("opportunistic", false)?;
    scheduling.lazy_preemption = args.key_or("lazy", false)?;
    scheduling.run_time_ms_max = args.key("run_time")?;
    scheduling.assembly_ms_max = args.key("assembly")?;
    scheduling.pinned_cell = args.key("pinned")?;
    scheduling.hosts_excluded = names(args.key("without")?).collect();
    spec.groups[0].layout.count_min = args.key("count_min")?;
    Ok(())
}

/// `allocation_basis=share|opportunistic|CELL+CELL`, a cell being the number of a host or the name of a rack; default
/// `share`.
pub(crate) fn allocation_basis(args: &mut Args<'_>) -> Result<AllocationBasis> {
    Ok(match args.key::<String>("basis")?.as_deref() {
        None | Some("share") => AllocationBasis::Share,
        Some("opportunistic") => AllocationBasis::Opportunistic,
        Some(cells) => {
            let cells = cells.split('+').map(|cell| match cell.parse() {
                Ok(host) => CellId::Host(HostId(host)),
                Err(_) => CellId::Above(cell.into()),
            });
            AllocationBasis::Cells(cells.collect())
        }
    })
}

fn names(list: Option<String>) -> impl Iterator<Item = String> {
    let names: Vec<String> = list
        .iter()
        .flat_map(|list| list.split(','))
        .map(str::to_owned)
        .collect();
    names.into_iter()
}

fn queue_config(settings: &str) -> Result<QueueConfig> {
    let mut config = QueueConfig::default();
    let limits = |gpus: &str| -> Result<Limits> {
        Ok(Limits {
            gpus: Some(gpus.parse()?),
            ..Limits::default()
        })
    };
    let mut quota = CellQuota {
        level: "host".to_owned(),
        gpu_model: "H100".to_owned(),
        gpus: 4,
        count: 0,
        pinned: Vec::new(),
    };
    for setting in settings.split(',').filter(|setting| !setting.is_empty()) {
        let (key, value) = setting.split_once('=').ok_or("a setting is KEY=VALUE")?;
        match key {
            "gpus" => {
                config.guarantee = Guarantee::Amounts(Amounts {
                    gpus: value.parse()?,
                    ..Amounts::default()
                });
            }
            "limit" => config.limit = limits(value)?,
            "user_limit" => config.user_limit = limits(value)?,
            "borrow" => config.borrow = value.parse()?,
            "preempt" => config.preempt_by_priority = value.parse()?,
            "protected" => config.protected_ms = value.parse()?,
            "movable" => config.movable = value.parse()?,
            "live" => config.live_jobs_max = value.parse()?,
            "weight" => config.weight = value.parse()?,
            "cells" => {
                let parts: Vec<&str> = value.split('*').collect();
                let [level, model, gpus, count] = parts[..] else {
                    return Err("cells are LEVEL*MODEL*GPUS*COUNT".into());
                };
                quota.level = level.to_owned();
                quota.gpu_model = model.to_owned();
                quota.gpus = gpus.parse()?;
                quota.count = count.parse()?;
                config.guarantee = Guarantee::Cells(vec![quota.clone()]);
            }
            "pinned" => {
                let (name, cell) = value.split_once('*').ok_or("a pinned cell is NAME*CELL")?;
                quota.pinned.push(PinnedCell {
                    name: name.to_owned(),
                    cell: cell.to_owned(),
                });
                config.guarantee = Guarantee::Cells(vec![quota.clone()]);
            }
            other => return Err(format!("no setting `{other}`").into()),
        }
    }
    Ok(config)
}
