//! Fault plan of a world: faults and repairs with their times. It is drawn before the world begins, each
//! fault from its own random stream, so that faults can be left out one by one.

mod accounts;
mod links;
mod loss;
mod optional;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use accounts::draw_forgotten_accounts;
use links::{draw_bad_links, draw_link};
pub(in crate::sim) use loss::losses;
use loss::{USERS_MORE, draw_loss};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::sim::faults::fault::{Fault, NodeRef, ScheduledFault};
use crate::sim::faults::host_fault::HostFault;
use crate::sim::random_streams::{StreamOwner, draws};
use crate::sim::scale::{Scale, Tempo};

/// GPUs per host if the number of hosts is given.
const GPUS_OF_EACH: u32 = 8;
/// One in this many worlds is large, and its number of hosts: a large world takes as long as dozens of
/// others.
const LARGE_WORLDS: u64 = 64;
const LARGE_HOSTS: RangeInclusive<u32> = 8..=200;
/// Largest step of a wall clock, in milliseconds: one hour.
const CLOCK_STEP_MS_MAX: i64 = 3_600_000;
/// GPU errors by XID: a double bit error, a fault of an application, a row that could not be remapped, a
/// broken link, fallen off the bus, contained errors, and a hung processor on the GPU.
const XIDS: [u32; 7] = [48, 31, 64, 74, 79, 94, 119];
/// Adapter ports per host.
const PORTS: u32 = 2;
/// Largest number in a list of faults.
const NUMBER_MAX: u32 = 1_000_000;

/// Size of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Initial replicas.
    pub replicas: u32,
    /// Spare machines for later replicas. Without them the membership does not change.
    #[serde(default)]
    pub spares: u32,
    /// Recovery machines for rebuilding the group after the loss of all replicas.
    #[serde(default)]
    pub recovery_machines: u32,
    /// GPUs of each host.
    pub hosts: Vec<u32>,
    /// Number of users; the first one is the admin.
    pub users: u32,
}

impl Shape {
    /// Draws the shape of a seed's world.
    #[must_use]
    pub fn draw(seed: u64, scale: Scale) -> Self {
        let mut random = draws(seed, StreamOwner::Shape, 0, 0);
        let replicas = match random.random_range(0..8) {
            0 => 1,
            1 | 2 => 5,
            _ => 3,
        };
        let hosts = random.random_range(2..8);
        Self {
            replicas,
            spares: draw_spares(seed, replicas, scale.tempo),
            recovery_machines: losses(seed) * replicas,
            hosts: (0..hosts).map(|_| random.random_range(2..9)).collect(),
            users: random.random_range(1..4) + if losses(seed) > 0 { USERS_MORE } else { 0 },
        }
        .with_hosts(scale.hosts.or_else(|| draw_many(seed)))
    }

    /// The same shape with `hosts` identical hosts and a matching number of users.
    fn with_hosts(self, hosts: Option<u32>) -> Self {
        let Some(hosts) = hosts else {
            return self;
        };
        Self {
            hosts: vec![GPUS_OF_EACH; hosts as usize],
            users: Scale::users(hosts),
            ..self
        }
    }

    /// Number of machines for replicas.
    #[must_use]
    pub const fn machines(&self) -> u32 {
        self.replicas + self.spares + self.recovery_machines
    }

    /// Replicas initially known to users: the initial ones, including those of a restored group. Users
    /// discover the others.
    pub fn known(&self) -> impl Iterator<Item = u32> + use<> {
        let restored = self.machines() - self.recovery_machines + 1..=self.machines();
        (1..=self.replicas).chain(restored)
    }

    fn draw_replica(&self, random: &mut ChaCha8Rng) -> u32 {
        random.random_range(1..=self.machines())
    }

    fn draw_host(&self, random: &mut ChaCha8Rng) -> u32 {
        let hosts = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        random.random_range(0..hosts)
    }

    fn draw_user(&self, random: &mut ChaCha8Rng) -> u32 {
        random.random_range(0..self.users)
    }
}

/// Draws the number of hosts if the world is a large one.
fn draw_many(seed: u64) -> Option<u32> {
    let is_large = (seed + 1).is_multiple_of(LARGE_WORLDS);
    is_large.then(|| draws(seed, StreamOwner::Large, 0, 0).random_range(LARGE_HOSTS))
}

/// Draws spare machines for new replicas: some worlds with several initial replicas have them.
fn draw_spares(seed: u64, replicas: u32, tempo: Tempo) -> u32 {
    let mut random = draws(seed, StreamOwner::Spares, 0, 0);
    if replicas < 3 || !random.random_bool(tempo.rare_share()) {
        return 0;
    }
    random.random_range(1..4)
}

/// Selection of the faults that a world executes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FaultSelection {
    /// All of them.
    #[default]
    All,
    /// Those with these numbers.
    Only(Numbers),
    /// Faults and cluster from a script instead of drawn ones.
    Script(Arc<Plan>),
}

/// A cluster with its faults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The cluster.
    pub shape: Shape,
    /// The faults in order of their times.
    pub faults: Vec<ScheduledFault>,
}

impl Plan {
    /// Faults of a seed's world with `faults_s` seconds of faults.
    #[must_use]
    pub fn of(seed: u64, faults_s: u64, scale: Scale, chosen: &FaultSelection) -> Self {
        if let FaultSelection::Script(plan) = chosen {
            return Self::clone(plan);
        }
        let shape = Shape::draw(seed, scale);
        let mut faults = draw(seed, &shape, faults_s, scale.tempo);
        if let FaultSelection::Only(numbers) = chosen {
            faults.retain(|scheduled| numbers.0.contains(&scheduled.number));
        }
        Self { shape, faults }
    }
}

/// Number of faults from a persistent host fault to the death of the host's agent, where that follows: by
/// then the agent has reported the fault, and the next one must know it.
const AGENT_DIES_FAULTS_LATER: usize = 2;

/// The fault or repair `distance` faults before the next one.
fn before(faults: &[ScheduledFault], distance: usize) -> Option<&Fault> {
    let index = faults.len().checked_sub(distance)?;
    faults.get(index).map(|scheduled| &scheduled.fault)
}

/// All faults of a seed's world. Each depends only on the seed, its number, the cluster's shape and the faults
/// just before it; its time also on the pauses before it.
#[must_use]
pub fn draw(seed: u64, shape: &Shape, faults_s: u64, tempo: Tempo) -> Vec<ScheduledFault> {
    let mut faults = Vec::new();
    let mut at_ms = 0;
    for number in 1.. {
        let mut random = draws(seed, StreamOwner::Fault, number, 0);
        at_ms += random.random_range(tempo.fault_pause_ms());
        if at_ms >= faults_s * 1_000 {
            break;
        }
        let fault = match before(&faults, AGENT_DIES_FAULTS_LATER) {
            Some(Fault::HostFaulted {
                host,
                persists: true,
                ..
            }) if random.random_ratio(2, 3) => Fault::KillAgent(*host),
            _ => draw_fault(&mut random, shape),
        };
        faults.push(ScheduledFault {
            number,
            at_ms,
            fault,
        });
    }
    faults.extend(draw_loss(seed, shape, faults_s));
    faults.extend(draw_forgotten_accounts(seed, shape, faults_s, tempo));
    faults.extend(draw_bad_links(seed, shape, faults_s, tempo));
    faults.sort_by_key(|scheduled| scheduled.at_ms);
    faults
}

/// Total weight of all faults, without and with membership changes.
const WEIGHTS: u32 = 44;
const WEIGHTS_WITH_SPARES: u32 = 50;

fn draw_fault(random: &mut ChaCha8Rng, shape: &Shape) -> Fault {
    let kinds = if shape.spares > 0 {
        WEIGHTS_WITH_SPARES
    } else {
        WEIGHTS
    };
    match random.random_range(0..kinds) {
        0..3 => Fault::KillReplica(shape.draw_replica(random)),
        3..5 => Fault::Isolate(NodeRef::Replica(shape.draw_replica(random))),
        5..7 => {
            let (from, to) = draw_link(random, shape);
            Fault::Cut { from, to }
        }
        7..9 => Fault::KillAgent(shape.draw_host(random)),
        9 => Fault::KillHost(shape.draw_host(random)),
        10 => Fault::Isolate(NodeRef::Agent(shape.draw_host(random))),
        11 => Fault::Isolate(NodeRef::User(shape.draw_user(random))),
        12..14 => draw_gpu_fault(random, shape),
        14..17 => draw_clock_step(random, shape),
        17 => Fault::FillDisk(shape.draw_replica(random)),
        18..20 => Fault::RepeatOrder(shape.draw_host(random)),
        20 => Fault::FreezeReplica(shape.draw_replica(random)),
        21 => Fault::FreezeAgent(shape.draw_host(random)),
        22 => Fault::FreezeHost(shape.draw_host(random)),
        23..25 => Fault::HealLinks,
        25..28 => Fault::StartReplicas,
        28..30 => Fault::Thaw,
        30..33 => Fault::StartAgents,
        33 => Fault::HealGpus,
        34 | 35 => Fault::StartHosts,
        36 => Fault::FailDisk(shape.draw_replica(random)),
        37 => Fault::StallDisk(shape.draw_replica(random)),
        38 => Fault::CorruptDisk {
            replica: shape.draw_replica(random),
            at: random.random(),
        },
        39..43 => draw_host_fault(random, shape),
        43 => Fault::HealHosts,
        44..46 => Fault::AddReplica,
        46 => Fault::RemoveReplica(shape.draw_replica(random)),
        _ => Fault::ReplaceReplica(shape.draw_replica(random)),
    }
}

fn draw_gpu_fault(random: &mut ChaCha8Rng, shape: &Shape) -> Fault {
    let host = shape.draw_host(random);
    Fault::BreakGpu {
        host,
        gpu: random.random_range(0..shape.hosts[host as usize]),
        xid: XIDS[random.random_range(0..XIDS.len())],
    }
}

fn draw_host_fault(random: &mut ChaCha8Rng, shape: &Shape) -> Fault {
    Fault::HostFaulted {
        host: shape.draw_host(random),
        port: random.random_range(0..PORTS),
        fault: draw_kind(random),
        persists: random.random_bool(0.5),
    }
}

/// One in three is an adapter's fault: rules that only hold off gangs are reported and reverted most often.
fn draw_kind(random: &mut ChaCha8Rng) -> HostFault {
    let is_adapters = |it: &HostFault| it.readings().is_adapters;
    let adapters: Vec<HostFault> = HostFault::ALL.into_iter().filter(is_adapters).collect();
    let kinds: &[HostFault] = if random.random_ratio(1, 3) {
        &adapters
    } else {
        &HostFault::ALL
    };
    kinds[random.random_range(0..kinds.len())]
}

fn draw_clock_step(random: &mut ChaCha8Rng, shape: &Shape) -> Fault {
    let by_ms = random.random_range(-CLOCK_STEP_MS_MAX..CLOCK_STEP_MS_MAX);
    if random.random_ratio(2, 3) {
        return Fault::StepHostClocks { by_ms };
    }
    let replica = shape.draw_replica(random);
    Fault::StepReplicaClock { replica, by_ms }
}

/// Numbers of faults as users write them: `3,7-9`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Numbers(pub BTreeSet<u32>);

/// A list of numbers that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a list of fault numbers; expected for example 3,7-9, with numbers up to {NUMBER_MAX}"
)]
pub struct OddNumbers(String);

impl FromStr for Numbers {
    type Err = OddNumbers;

    /// An empty text contains no fault.
    fn from_str(text: &str) -> Result<Self, OddNumbers> {
        let odd = || OddNumbers(text.to_owned());
        let mut numbers = BTreeSet::new();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<u32>().map_err(|_| odd());
            let (from, to) = (number(from)?, number(to)?);
            if from > to || to > NUMBER_MAX {
                return Err(odd());
            }
            numbers.extend(from..=to);
        }
        Ok(Self(numbers))
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut comma = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if_eq(&(last + 1)) {
                last = next;
            }
            match last - first {
                0 => write!(formatter, "{comma}{first}")?,
                _ => write!(formatter, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// A seed with only the faults that all worlds have: the times of others depend on the duration.
    fn plain_seed() -> u64 {
        let is_plain = |seed: &u64| {
            let shape = Shape::draw(*seed, Scale::default());
            let others = [draw_forgotten_accounts, draw_bad_links];
            draw_loss(*seed, &shape, 60).is_empty()
                && others
                    .iter()
                    .all(|of| of(*seed, &shape, 60, Tempo::Hurried).is_empty())
        };
        (0..).find(is_plain).unwrap()
    }

    #[test]
    fn a_fault_does_not_depend_on_the_others() {
        let seed = plain_seed();
        let shape = Shape::draw(seed, Scale::default());
        let long = draw(seed, &shape, 60, Tempo::Hurried);
        let short = draw(seed, &shape, 20, Tempo::Hurried);
        assert!(short.len() < long.len());
        assert_eq!(short[..], long[..short.len()]);
        let numbers = Numbers([2, 4].into());
        let some = Plan::of(seed, 60, Scale::default(), &FaultSelection::Only(numbers));
        assert_eq!(some.faults, [long[1].clone(), long[3].clone()]);
        assert!(long.windows(2).all(|pair| pair[0].at_ms < pair[1].at_ms));
    }

    #[test]
    fn every_fault_is_drawn_within_the_cluster() {
        let mut kinds = BTreeSet::new();
        for seed in 0..400 {
            let shape = Shape::draw(seed, Scale::default());
            for scheduled in draw(seed, &shape, 60, Tempo::Hurried) {
                let text = format!("{:?}", scheduled.fault);
                let kind = text.split(['(', ' ']).next().unwrap().to_owned();
                kinds.insert(kind);
                if let Fault::BreakGpu { host, gpu, .. } = scheduled.fault {
                    assert!(gpu < shape.hosts[host as usize]);
                }
            }
        }
        assert_eq!(kinds.len(), 31, "{kinds:?}");
        let shapes = (0..400).map(|seed| Shape::draw(seed, Scale::default()));
        let shapes: Vec<Shape> = shapes.collect();
        let replicas: BTreeSet<u32> = shapes.iter().map(|shape| shape.replicas).collect();
        assert_eq!(replicas, [1, 3, 5].into());
        let (mut large, mut small) = (0, 0);
        for hosts in shapes.iter().map(|shape| shape.hosts.len()) {
            *(if hosts < 8 { &mut small } else { &mut large }) += 1;
            assert!((2..=200).contains(&hosts), "{hosts} hosts");
        }
        assert_eq!((small, large), (394, 6));
    }

    #[test]
    fn a_large_cluster_of_production_has_time_between_faults() {
        let scale = Scale {
            hosts: Some(200),
            tempo: Tempo::Production,
        };
        let day = Plan::of(1, 86_400, scale, &FaultSelection::All);
        assert_eq!((day.shape.hosts.len(), day.shape.users), (200, 20));
        // About one a minute.
        assert!(
            (1_200..1_700).contains(&day.faults.len()),
            "{}",
            day.faults.len()
        );
    }

    #[test]
    fn lists_of_numbers_are_read_and_written() {
        let numbers: Numbers = "3, 7-9,12".parse().unwrap();
        assert_eq!(numbers.to_string(), "3,7-9,12");
        assert_eq!("".parse::<Numbers>().unwrap(), Numbers::default());
        for odd in ["9-7", "x", "1-", "5000000"] {
            assert!(odd.parse::<Numbers>().is_err(), "{odd}");
        }
    }
}
