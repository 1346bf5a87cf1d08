//! Fault plan of a world: faults and repairs with their times. It is drawn before the world begins, each
//! act from its own random stream, so that acts can be left out one by one.

mod accounts;
mod links;
mod loss;
mod rare;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use accounts::draw_forgotten_accounts;
use links::{draw_bad_links, draw_link};
pub(super) use loss::losses;
use loss::{USERS_MORE, draw_loss};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::sim::ailments::Ailment;
use crate::sim::draws::{Domain, draws};
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
/// Largest number in a list of acts.
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
    pub heirs: u32,
    /// GPUs of each host.
    pub hosts: Vec<u32>,
    /// Number of users; the first one is the admin.
    pub users: u32,
}

impl Shape {
    /// Draws the shape of a seed's world.
    #[must_use]
    pub fn draw(seed: u64, scale: Scale) -> Self {
        let mut random = draws(seed, Domain::Shape, 0, 0);
        let replicas = match random.random_range(0..8) {
            0 => 1,
            1 | 2 => 5,
            _ => 3,
        };
        let hosts = random.random_range(2..8);
        Self {
            replicas,
            spares: draw_spares(seed, replicas, scale.tempo),
            heirs: losses(seed) * replicas,
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
        self.replicas + self.spares + self.heirs
    }

    /// Replicas initially known to users: the initial ones, including those of a restored group. Users
    /// discover the others.
    pub fn known(&self) -> impl Iterator<Item = u32> + use<> {
        let heirs = self.machines() - self.heirs + 1..=self.machines();
        (1..=self.replicas).chain(heirs)
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
    is_large.then(|| draws(seed, Domain::Large, 0, 0).random_range(LARGE_HOSTS))
}

/// Draws spare machines for new replicas: some worlds with several initial replicas have them.
fn draw_spares(seed: u64, replicas: u32, tempo: Tempo) -> u32 {
    let mut random = draws(seed, Domain::Spares, 0, 0);
    if replicas < 3 || !random.random_bool(tempo.rare_share()) {
        return 0;
    }
    random.random_range(1..4)
}

/// A node in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// A replica, by its id.
    Replica(u32),
    /// The agent of a host, by the host's number.
    Agent(u32),
    /// A user.
    User(u32),
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replica(id) => write!(formatter, "replica-{id}"),
            Self::Agent(host) => write!(formatter, "node{host:02}"),
            Self::User(number) => write!(formatter, "user-{number}"),
        }
    }
}

/// A fault or repair. Replicas count from 1; hosts, their GPUs and users from 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deed {
    /// A replica is killed.
    KillReplica(u32),
    /// A node is cut off from all others, both ways.
    Isolate(Place),
    /// A link is cut, one way.
    Cut {
        /// The sender.
        from: Place,
        /// The receiver.
        to: Place,
    },
    /// A link loses and delays some messages, and delivers some requests twice.
    Spoil {
        /// The sender.
        from: Place,
        /// The receiver.
        to: Place,
    },
    /// A host's agent is killed.
    KillAgent(u32),
    /// A host dies with all its processes.
    KillHost(u32),
    /// A GPU reports an XID error.
    BreakGpu {
        /// The host.
        host: u32,
        /// Index of the GPU.
        gpu: u32,
        /// XID of the error.
        xid: u32,
    },
    /// A host, or a port of one of its adapters, becomes faulty.
    FallIll {
        /// The host.
        host: u32,
        /// The port, for an adapter's fault.
        port: u32,
        /// The fault.
        ailment: Ailment,
        /// Whether it persists until repaired; otherwise it is read once.
        lasts: bool,
    },
    /// The wall clocks of all hosts are set: a time server is wrong.
    StepHostClocks {
        /// Step in milliseconds.
        by_ms: i64,
    },
    /// The wall clock of a replica is set.
    StepReplicaClock {
        /// The replica.
        replica: u32,
        /// Step in milliseconds.
        by_ms: i64,
    },
    /// The disk of a replica is full.
    FillDisk(u32),
    /// The disk of a replica fails.
    FailDisk(u32),
    /// The disk of a replica stalls.
    StallDisk(u32),
    /// A bit on the disk of a replica flips.
    RotDisk {
        /// The replica.
        replica: u32,
        /// Selects the entry and the bit.
        at: u32,
    },
    /// One of the past orders of a host's agent arrives again.
    RepeatOrder(u32),
    /// The submitting users lose their accounts on a host.
    ForgetAccounts(u32),
    /// A new replica is started and added, and votes once it has caught up.
    AddReplica,
    /// A replica is removed from the group.
    RemoveReplica(u32),
    /// A new replica becomes a voter in place of another one.
    ReplaceReplica(u32),
    /// A replica is paused.
    FreezeReplica(u32),
    /// A host's agent is paused; its supervisors and tasks continue.
    FreezeAgent(u32),
    /// A whole host is paused: agent, supervisors and tasks.
    FreezeHost(u32),
    /// A backup is taken.
    BackUp,
    /// All replicas are lost with their disks, and a new group is restored from the backup.
    LoseReplicas,
    /// All links are repaired.
    HealLinks,
    /// All stopped replicas are started; full disks get space, and others are repaired.
    StartReplicas,
    /// Everything paused is resumed.
    Thaw,
    /// All stopped agents are started.
    StartAgents,
    /// All hosts that are down are switched on.
    StartHosts,
    /// All GPUs are repaired.
    HealGpus,
    /// All hosts, adapters and accounts are repaired.
    HealHosts,
}

/// A fault or repair with its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Act {
    /// Number, from 1.
    pub number: u32,
    /// Milliseconds since the users began.
    pub at_ms: u64,
    /// The fault or repair.
    pub deed: Deed,
}

impl fmt::Display for Act {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.at_ms / 1_000, self.at_ms % 1_000);
        let Self { number, deed, .. } = self;
        write!(
            formatter,
            "{seconds:>4}.{millis:03} s  act {number:>3}  {deed:?}"
        )
    }
}

/// Selection of the acts that a world executes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Acts {
    /// All of them.
    #[default]
    All,
    /// Those with these numbers.
    Only(Numbers),
    /// Acts and cluster from a script instead of drawn ones.
    Script(Arc<Plan>),
}

/// A cluster with its acts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The cluster.
    pub shape: Shape,
    /// The acts in order of their times.
    pub acts: Vec<Act>,
}

impl Plan {
    /// Acts of a seed's world with `faults_s` seconds of faults.
    #[must_use]
    pub fn of(seed: u64, faults_s: u64, scale: Scale, chosen: &Acts) -> Self {
        if let Acts::Script(plan) = chosen {
            return Self::clone(plan);
        }
        let shape = Shape::draw(seed, scale);
        let mut acts = draw(seed, &shape, faults_s, scale.tempo);
        if let Acts::Only(numbers) = chosen {
            acts.retain(|act| numbers.0.contains(&act.number));
        }
        Self { shape, acts }
    }
}

/// Number of acts from a persistent host fault to the death of the host's agent, where that follows: by
/// then the agent has reported the fault, and the next one must know it.
const AGENT_DIES_ACTS_LATER: usize = 2;

/// The fault or repair `distance` acts before the next one.
fn before(acts: &[Act], distance: usize) -> Option<&Deed> {
    let index = acts.len().checked_sub(distance)?;
    acts.get(index).map(|act| &act.deed)
}

/// All acts of a seed's world. Each depends only on the seed, its number, the cluster's shape and the acts
/// just before it; its time also on the pauses before it.
#[must_use]
pub fn draw(seed: u64, shape: &Shape, faults_s: u64, tempo: Tempo) -> Vec<Act> {
    let mut acts = Vec::new();
    let mut at_ms = 0;
    for number in 1.. {
        let mut random = draws(seed, Domain::Act, number, 0);
        at_ms += random.random_range(tempo.act_pause_ms());
        if at_ms >= faults_s * 1_000 {
            break;
        }
        let deed = match before(&acts, AGENT_DIES_ACTS_LATER) {
            Some(Deed::FallIll {
                host, lasts: true, ..
            }) if random.random_ratio(2, 3) => Deed::KillAgent(*host),
            _ => draw_deed(&mut random, shape),
        };
        acts.push(Act {
            number,
            at_ms,
            deed,
        });
    }
    acts.extend(draw_loss(seed, shape, faults_s));
    acts.extend(draw_forgotten_accounts(seed, shape, faults_s, tempo));
    acts.extend(draw_bad_links(seed, shape, faults_s, tempo));
    acts.sort_by_key(|act| act.at_ms);
    acts
}

/// Total weight of all faults, without and with membership changes.
const DEEDS: u32 = 44;
const DEEDS_WITH_SPARES: u32 = 50;

fn draw_deed(random: &mut ChaCha8Rng, shape: &Shape) -> Deed {
    let kinds = if shape.spares > 0 {
        DEEDS_WITH_SPARES
    } else {
        DEEDS
    };
    match random.random_range(0..kinds) {
        0..3 => Deed::KillReplica(shape.draw_replica(random)),
        3..5 => Deed::Isolate(Place::Replica(shape.draw_replica(random))),
        5..7 => {
            let (from, to) = draw_link(random, shape);
            Deed::Cut { from, to }
        }
        7..9 => Deed::KillAgent(shape.draw_host(random)),
        9 => Deed::KillHost(shape.draw_host(random)),
        10 => Deed::Isolate(Place::Agent(shape.draw_host(random))),
        11 => Deed::Isolate(Place::User(shape.draw_user(random))),
        12..14 => draw_gpu_fault(random, shape),
        14..17 => draw_clock_step(random, shape),
        17 => Deed::FillDisk(shape.draw_replica(random)),
        18..20 => Deed::RepeatOrder(shape.draw_host(random)),
        20 => Deed::FreezeReplica(shape.draw_replica(random)),
        21 => Deed::FreezeAgent(shape.draw_host(random)),
        22 => Deed::FreezeHost(shape.draw_host(random)),
        23..25 => Deed::HealLinks,
        25..28 => Deed::StartReplicas,
        28..30 => Deed::Thaw,
        30..33 => Deed::StartAgents,
        33 => Deed::HealGpus,
        34 | 35 => Deed::StartHosts,
        36 => Deed::FailDisk(shape.draw_replica(random)),
        37 => Deed::StallDisk(shape.draw_replica(random)),
        38 => Deed::RotDisk {
            replica: shape.draw_replica(random),
            at: random.random(),
        },
        39..43 => draw_ailment(random, shape),
        43 => Deed::HealHosts,
        44..46 => Deed::AddReplica,
        46 => Deed::RemoveReplica(shape.draw_replica(random)),
        _ => Deed::ReplaceReplica(shape.draw_replica(random)),
    }
}

fn draw_gpu_fault(random: &mut ChaCha8Rng, shape: &Shape) -> Deed {
    let host = shape.draw_host(random);
    Deed::BreakGpu {
        host,
        gpu: random.random_range(0..shape.hosts[host as usize]),
        xid: XIDS[random.random_range(0..XIDS.len())],
    }
}

fn draw_ailment(random: &mut ChaCha8Rng, shape: &Shape) -> Deed {
    Deed::FallIll {
        host: shape.draw_host(random),
        port: random.random_range(0..PORTS),
        ailment: draw_kind(random),
        lasts: random.random_bool(0.5),
    }
}

/// One in three is an adapter's fault: rules that only hold off gangs are reported and reverted most often.
fn draw_kind(random: &mut ChaCha8Rng) -> Ailment {
    let is_adapters = |it: &Ailment| it.signs().is_adapters;
    let adapters: Vec<Ailment> = Ailment::ALL.into_iter().filter(is_adapters).collect();
    let kinds: &[Ailment] = if random.random_ratio(1, 3) {
        &adapters
    } else {
        &Ailment::ALL
    };
    kinds[random.random_range(0..kinds.len())]
}

fn draw_clock_step(random: &mut ChaCha8Rng, shape: &Shape) -> Deed {
    let by_ms = random.random_range(-CLOCK_STEP_MS_MAX..CLOCK_STEP_MS_MAX);
    if random.random_ratio(2, 3) {
        return Deed::StepHostClocks { by_ms };
    }
    let replica = shape.draw_replica(random);
    Deed::StepReplicaClock { replica, by_ms }
}

/// Numbers of acts as users write them: `3,7-9`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Numbers(pub BTreeSet<u32>);

/// A list of numbers that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a list of acts; expected for example 3,7-9, with numbers up to {NUMBER_MAX}")]
pub struct OddNumbers(String);

impl FromStr for Numbers {
    type Err = OddNumbers;

    /// An empty text contains no act.
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

    /// A seed with only the acts that all worlds have: the times of others depend on the duration.
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
    fn an_act_does_not_depend_on_the_others() {
        let seed = plain_seed();
        let shape = Shape::draw(seed, Scale::default());
        let long = draw(seed, &shape, 60, Tempo::Hurried);
        let short = draw(seed, &shape, 20, Tempo::Hurried);
        assert!(short.len() < long.len());
        assert_eq!(short[..], long[..short.len()]);
        let numbers = Numbers([2, 4].into());
        let some = Plan::of(seed, 60, Scale::default(), &Acts::Only(numbers));
        assert_eq!(some.acts, [long[1].clone(), long[3].clone()]);
        assert!(long.windows(2).all(|pair| pair[0].at_ms < pair[1].at_ms));
    }

    #[test]
    fn every_deed_is_drawn_within_the_cluster() {
        let mut kinds = BTreeSet::new();
        for seed in 0..400 {
            let shape = Shape::draw(seed, Scale::default());
            for act in draw(seed, &shape, 60, Tempo::Hurried) {
                let text = format!("{:?}", act.deed);
                let kind = text.split(['(', ' ']).next().unwrap().to_owned();
                kinds.insert(kind);
                if let Deed::BreakGpu { host, gpu, .. } = act.deed {
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
        let day = Plan::of(1, 86_400, scale, &Acts::All);
        assert_eq!((day.shape.hosts.len(), day.shape.users), (200, 20));
        // About one a minute.
        assert!(
            (1_200..1_700).contains(&day.acts.len()),
            "{}",
            day.acts.len()
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
