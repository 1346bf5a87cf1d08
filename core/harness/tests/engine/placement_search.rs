//! Feasible gangs are never missed: the planner against brute force on small random clusters.
//!
//! Every case is drawn from one number, which a failure prints.

use std::sync::Arc;

use muster_engine::state::State;
use muster_harness::{Cluster, gang, gpu_uuid, host_of_model};
use muster_model::command::{Block, BlockTarget, Command, ConfigCommand};
use muster_model::spec::{JobSpec, TaskGroup, Within};
use muster_model::topology::{CellGroup, CellPlace, HostShape, Topology};
use muster_planner::{Budget, plan};

/// Number of random cases.
const CASES: u64 = 3_000;
const MODELS: [&str; 2] = ["A100", "H100"];

/// SplitMix64.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((mixed ^ (mixed >> 31)) % u64::from(bound)).unwrap_or(0)
    }

    fn within(&mut self, levels: &[&str]) -> Option<Within> {
        let level = self.below(u32::try_from(levels.len()).unwrap_or(1) * 2) as usize;
        levels.get(level).map(|level| Within {
            level: (*level).to_owned(),
            required: self.below(5) > 0,
        })
    }
}

/// Two racks, hosts with two sockets.
fn topology(hosts: u32) -> Topology {
    let name = |number: u32| format!("node-{number:04}");
    let rack = |rack: u32| CellPlace {
        cell: vec![format!("rack-{rack}")],
        hosts: (1..=hosts)
            .filter(|host| host % 2 == rack)
            .map(name)
            .collect(),
    };
    let shape = |gpus: u32| {
        let half = gpus / 2;
        let group = |gpus: std::ops::Range<u32>| CellGroup {
            level: "socket".to_owned(),
            gpus: gpus.collect(),
        };
        HostShape {
            gpus,
            groups: vec![group(0..half), group(half..gpus)],
            ..HostShape::default()
        }
    };
    Topology {
        above: vec!["rack".to_owned()],
        inside: vec!["socket".to_owned()],
        places: vec![rack(0), rack(1)],
        shapes: (2..=8).map(shape).collect(),
    }
}

fn cluster(draw: &mut Draw) -> Cluster {
    let mut cluster = Cluster::new();
    let hosts = 1 + draw.below(5);
    let request = cluster.next_request();
    let configured = cluster.apply(&Command::Config(ConfigCommand::SetTopology {
        request,
        author: "test".to_owned(),
        topology: Arc::new(topology(hosts)),
    }));
    assert!(configured.result.is_ok(), "{configured:?}");
    let models = 1 + draw.below(2);
    for number in 1..=hosts {
        let gpus = 2 + draw.below(7);
        let model = MODELS[draw.below(models) as usize];
        let mut host = host_of_model(number, gpus, model);
        host.cpus_milli = 1_000 * (4 + draw.below(12));
        cluster.register(host);
        let blocked = draw.below(4);
        for gpu in (0..gpus)
            .filter(|_| draw.below(8) < blocked)
            .collect::<Vec<_>>()
        {
            block(&mut cluster, number, gpu);
        }
    }
    cluster
}

fn block(cluster: &mut Cluster, host: u32, gpu: u32) {
    let request = cluster.next_request();
    let since = cluster.now;
    cluster.apply(&Command::Block {
        request,
        target: BlockTarget::Gpu(gpu_uuid(host, gpu)),
        block: Block {
            reason: "drawn".to_owned(),
            author: "test".to_owned(),
            evidence: String::new(),
            since,
            expires_at: None,
            drain_deadline: None,
            planned: None,
        },
        spares_last: false,
    });
}

fn job(draw: &mut Draw) -> JobSpec {
    let mut spec = gang("drawn", 1, 1);
    let groups = 1 + draw.below(3);
    let mut left = 6;
    let template = spec.groups[0].clone();
    spec.groups = (0..groups)
        .map(|position| {
            let count = 1 + draw.below((left - (groups - 1 - position)).min(4));
            left -= count;
            group(draw, &template, position, count)
        })
        .collect();
    if draw.below(4) == 0 {
        spec.scheduling.within = draw.within(&["rack", "host", "socket"]);
    }
    spec
}

fn group(draw: &mut Draw, template: &TaskGroup, position: u32, count: u32) -> TaskGroup {
    let mut group = template.clone();
    group.name = format!("group-{position}");
    group.count = count;
    group.resources.gpus = draw.below(6);
    group.resources.cpus_milli = 1_000 * (1 + draw.below(5));
    if draw.below(3) == 0 {
        group.resources.gpu_models = vec![MODELS[draw.below(2) as usize].to_owned()];
    }
    if draw.below(4) == 0 {
        group.tasks_per_host_max = Some(1 + draw.below(2));
    }
    if draw.below(3) == 0 {
        group.layout.within = draw.within(&["rack", "host", "socket"]);
        let size = 1 + draw.below(3);
        let parted = group.layout.within.is_some() && group.count.is_multiple_of(size);
        group.layout.within_tasks = parted.then_some(size);
    }
    if draw.below(6) == 0 {
        group.layout.count_min = Some(1 + draw.below(group.count));
    }
    group
}

/// A task in the brute-force search.
struct Task<'a> {
    group: usize,
    subgroup: u32,
    of: &'a TaskGroup,
}

/// A host in the brute-force search: its rack, model, free GPUs by socket, and CPUs.
struct Place {
    rack: u32,
    model: &'static str,
    sockets: [u32; 2],
    cpus_milli: u32,
    of_group: Vec<u32>,
}

/// Position of a task: its host, and its socket if all its GPUs are in one.
type Spot = (usize, Option<usize>);

struct Brute<'a> {
    spec: &'a JobSpec,
    tasks: Vec<Task<'a>>,
    places: Vec<Place>,
    spots: Vec<Spot>,
}

impl<'a> Brute<'a> {
    /// With the minimum number of tasks.
    fn new(state: &State, spec: &'a JobSpec) -> Self {
        let mut tasks = Vec::new();
        for (position, group) in spec.groups.iter().enumerate() {
            let size = group.layout.within_tasks.unwrap_or(group.count);
            let count = group.layout.count_min.unwrap_or(group.count);
            tasks.extend((0..count).map(|task| Task {
                group: position,
                subgroup: task / size,
                of: group,
            }));
        }
        let places = state.hosts.values().map(|host| {
            let half = host.gpus.len() / 2;
            let free = |range: std::ops::Range<usize>| {
                let free = host.gpus[range].iter().filter(|gpu| gpu.is_free()).count();
                u32::try_from(free).unwrap_or(0)
            };
            Place {
                rack: host.id.get() % 2,
                model: MODELS
                    .into_iter()
                    .find(|model| **model == *host.gpus[0].model)
                    .unwrap_or(""),
                sockets: [free(0..half), free(half..host.gpus.len())],
                cpus_milli: host.cpus_milli,
                of_group: vec![0; spec.groups.len()],
            }
        });
        Self {
            spec,
            tasks,
            places: places.collect(),
            spots: Vec::new(),
        }
    }

    fn fits(&mut self) -> bool {
        let position = self.spots.len();
        if position == self.tasks.len() {
            return true;
        }
        for host in 0..self.places.len() {
            let gpus = self.tasks[position].of.resources.gpus;
            for of_first in 0..=gpus {
                if self.place(position, host, [of_first, gpus - of_first]) {
                    let fits = self.fits();
                    self.take_back(position, host, [of_first, gpus - of_first]);
                    if fits {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Places a task on a host with these GPUs of each socket, if that is allowed.
    fn place(&mut self, position: usize, host: usize, gpus: [u32; 2]) -> bool {
        let task = &self.tasks[position];
        let place = &mut self.places[host];
        let needs = &task.of.resources;
        let socket = match gpus {
            [0, 0] => None,
            [_, 0] => Some(0),
            [0, _] => Some(1),
            _ => None,
        };
        let split = gpus[0] > 0 && gpus[1] > 0;
        let limit = task.of.tasks_per_host_max.unwrap_or(u32::MAX);
        let allowed = gpus[0] <= place.sockets[0]
            && gpus[1] <= place.sockets[1]
            && needs.cpus_milli <= place.cpus_milli
            && place.of_group[task.group] < limit
            && (needs.gpus == 0 || needs.accepts_model(place.model));
        if !allowed || !self.agrees(position, (host, socket), split) {
            return false;
        }
        let group = self.tasks[position].group;
        let place = &mut self.places[host];
        place.sockets[0] -= gpus[0];
        place.sockets[1] -= gpus[1];
        place.cpus_milli -= self.tasks[position].of.resources.cpus_milli;
        place.of_group[group] += 1;
        self.spots.push((host, socket));
        true
    }

    fn take_back(&mut self, position: usize, host: usize, gpus: [u32; 2]) {
        let task = &self.tasks[position];
        let place = &mut self.places[host];
        place.sockets[0] += gpus[0];
        place.sockets[1] += gpus[1];
        place.cpus_milli += task.of.resources.cpus_milli;
        place.of_group[task.group] -= 1;
        self.spots.pop();
    }

    /// Whether a task may be placed there, given those before it.
    fn agrees(&self, position: usize, spot: Spot, split: bool) -> bool {
        let task = &self.tasks[position];
        let level = |within: &Option<Within>| {
            let required = within.as_ref().filter(|within| within.required);
            required.map(|within| within.level.clone())
        };
        let of_gang = level(&self.spec.scheduling.within);
        let of_group = level(&task.of.layout.within);
        let in_one_socket =
            of_gang.as_deref() == Some("socket") || of_group.as_deref() == Some("socket");
        if split && in_one_socket {
            return false;
        }
        self.tasks[..position]
            .iter()
            .zip(&self.spots)
            .all(|(other, other_spot)| {
                let same_group = other.group == task.group;
                let models = !same_group
                    || task.of.resources.gpus == 0
                    || self.places[other_spot.0].model == self.places[spot.0].model;
                let subgroup = same_group && other.subgroup == task.subgroup;
                models
                    && self.shares(of_gang.as_deref(), spot, *other_spot, true)
                    && (!subgroup || self.shares(of_group.as_deref(), spot, *other_spot, false))
            })
    }

    /// Whether two positions share a cell of a level; a group's socket concerns each task's own GPUs.
    fn shares(&self, level: Option<&str>, one: Spot, other: Spot, whole_gang: bool) -> bool {
        match level {
            Some("rack") => self.places[one.0].rack == self.places[other.0].rack,
            Some("host") => one.0 == other.0,
            Some("socket") if whole_gang => {
                one.0 == other.0 && (one.1.is_none() || other.1.is_none() || one.1 == other.1)
            }
            _ => true,
        }
    }
}

/// Runs one case; returns whether the gang fits.
fn run(seed: u64) -> bool {
    let mut draw = Draw(seed);
    let mut cluster = cluster(&mut draw);
    let spec = job(&mut draw);
    let feasible = Brute::new(&cluster.state, &spec).fits();
    cluster.submit(spec.clone());
    let planned = plan(&cluster.state, cluster.now, Budget::default());
    let place = planned
        .steps
        .into_iter()
        .find(|step| matches!(step, Command::Place(_)));
    assert_eq!(
        place.is_some(),
        feasible,
        "seed {seed}: feasible by brute force: {feasible}\n{:#?}\n{:#?}\n{:#?}",
        spec.groups,
        spec.scheduling.within,
        planned.blocked,
    );
    if let Some(place) = place {
        let applied = cluster.apply(&place);
        assert!(
            applied.result.is_ok(),
            "seed {seed}: {:?}\n{place:#?}\n{:#?}",
            applied.result,
            spec.groups
        );
    }
    feasible
}

#[test]
fn no_gang_that_fits_is_missed_and_none_is_placed_that_does_not() {
    let feasible = (0..CASES).filter(|seed| run(*seed)).count();
    assert!(
        (CASES as usize / 4..CASES as usize * 3 / 4).contains(&feasible),
        "{feasible} of {CASES} cases fit: draw others"
    );
}
