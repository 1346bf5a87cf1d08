//! Tests of the replication alone under kills and cuts: acknowledged writes survive, replicas agree, a seed
//! replays.

use std::collections::BTreeSet;

use muster_raft_store::sim::AppliedEntry;
use muster_raft_store::{DecodeError, Peer, ProposeError};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::sim::runtime::run_world;

/// An observer that ignores everything.
struct Nobody;

impl Observer<Numbers> for Nobody {
    fn applied(&self, _entry: &AppliedEntry<'_, Numbers>) {}

    fn installed(&self, _index: u64, _state: &Numbers) {}
}

/// A set of numbers, with a running digest of the order of their arrival.
#[derive(Clone, Debug, Default)]
struct Numbers {
    applied: u64,
    digest: u64,
    members: imbl::OrdSet<u64>,
}

impl StateMachine for Numbers {
    type Command = u64;
    type Outcome = u64;

    fn encode_command(command: &u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&command.to_le_bytes());
    }

    fn decode_command(bytes: &[u8]) -> Result<u64, DecodeError> {
        bytes
            .try_into()
            .map(u64::from_le_bytes)
            .map_err(|_| DecodeError::malformed("not 8 bytes"))
    }

    fn apply(&mut self, _time_ms: u64, command: &u64) -> u64 {
        self.applied += 1;
        self.digest = self.digest.wrapping_mul(31).wrapping_add(*command);
        self.members.insert(*command);
        self.applied
    }

    fn revision(&self) -> u64 {
        self.applied
    }

    fn time_ms(&self) -> u64 {
        0
    }

    fn carry_over(&mut self, _former: &[(Peer, bool)], _now_ms: u64) {
        unreachable!("no group is restored here");
    }

    fn write_snapshot(&self, sink: &mut dyn std::io::Write) -> std::io::Result<()> {
        for word in [self.applied, self.digest]
            .into_iter()
            .chain(self.members.iter().copied())
        {
            sink.write_all(&word.to_le_bytes())?;
        }
        Ok(())
    }

    fn read_snapshot(source: &mut dyn std::io::Read) -> Result<Self, DecodeError> {
        let mut bytes = Vec::new();
        source.read_to_end(&mut bytes)?;
        let mut words = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        Ok(Self {
            applied: words.next().unwrap(),
            digest: words.next().unwrap(),
            members: words.collect(),
        })
    }

    fn state_hash(&self) -> u64 {
        self.digest
    }
}

/// Result of a run; equal for equal seeds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    acknowledged: BTreeSet<u64>,
    lost: Vec<u64>,
    digests: BTreeSet<u64>,
    messages: u64,
    kills: u32,
}

/// 60 simulated seconds of writes with a kill and restart every few of them, then a quiet end.
fn simulate(seed: u64, deceit: FalseDurability) -> Outcome {
    run_world(seed, async move {
        let network = SimNetwork::new(seed ^ 1);
        let mut replicas = Replicas::<Numbers>::new(3, seed, network.clone(), deceit);
        for id in 1..=3 {
            replicas.start(id, Arc::new(Nobody)).await.unwrap();
        }
        let (_, first) = replicas.registry.find("replica-1").unwrap();
        first.initialize(replicas.members()).await.unwrap();
        let mut random = ChaCha8Rng::seed_from_u64(seed ^ 2);
        let mut acknowledged = BTreeSet::new();
        let mut kills = 0;
        for number in 0..600 {
            write(&replicas, number, &mut acknowledged).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            match random.random_range(0..60) {
                0 => {
                    replicas.kill(random.random_range(1..=3));
                    kills += 1;
                }
                1 => network.isolate(NodeId(random.random_range(1..=3)), (1..=3).map(NodeId)),
                2..6 => network.heal(),
                6..12 => start_all(&mut replicas).await,
                _ => {}
            }
        }
        network.heal();
        start_all(&mut replicas).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        write(&replicas, 9_999, &mut acknowledged).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let states: Vec<Numbers> = replicas
            .registry
            .up()
            .iter()
            .map(|(_, handle)| handle.fork())
            .collect();
        let lost = |number: &u64| states.iter().any(|state| !state.members.contains(number));
        Outcome {
            lost: acknowledged.iter().copied().filter(lost).collect(),
            digests: states.iter().map(|state| state.digest).collect(),
            acknowledged,
            messages: network.messages(),
            kills,
        }
    })
    .unwrap()
}

async fn start_all(replicas: &mut Replicas<Numbers>) {
    for id in 1..=3 {
        if !replicas.is_up(id) {
            replicas.start(id, Arc::new(Nobody)).await.unwrap();
        }
    }
}

async fn write(replicas: &Replicas<Numbers>, number: u64, acknowledged: &mut BTreeSet<u64>) {
    for (_, handle) in replicas.registry.up() {
        let proposal = tokio::time::timeout(Duration::from_secs(1), handle.propose(vec![number]));
        match proposal.await {
            Ok(Ok(_)) => {
                acknowledged.insert(number);
                return;
            }
            Ok(Err(ProposeError::NotLeader { .. })) => {}
            // Unknown: it may or may not have happened, so nothing is claimed.
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

#[test]
fn acknowledged_writes_survive_and_replicas_agree() {
    for seed in 0..8 {
        let outcome = simulate(seed, FalseDurability::None);
        assert!(outcome.acknowledged.len() > 200, "seed {seed}: {outcome:?}");
        assert!(outcome.lost.is_empty(), "seed {seed}: {:?}", outcome.lost);
        assert_eq!(outcome.digests.len(), 1, "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let first = simulate(42, FalseDurability::None);
    assert!(first.kills > 0);
    assert_eq!(first, simulate(42, FalseDurability::None));
    assert_ne!(first, simulate(43, FalseDurability::None));
}

#[test]
fn a_world_that_is_over_keeps_no_replica() {
    let observer = Arc::new(Nobody);
    let kept = Arc::downgrade(&observer);
    run_world(1, async move {
        let mut replicas =
            Replicas::<Numbers>::new(1, 1, SimNetwork::new(1), FalseDurability::None);
        replicas.start(1, observer).await.unwrap();
        assert_eq!(replicas.registry.up().len(), 1);
    })
    .unwrap();
    assert!(kept.upgrade().is_none());
}
