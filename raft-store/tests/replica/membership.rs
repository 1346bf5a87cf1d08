//! Interrupted membership changes, and removed replicas.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use muster_raft_store::sim::{Environment, ProductionRuntime, SnapshotDisk};
use muster_raft_store::storage::disk::SnapshotWrite;
use muster_raft_store::storage::memory::{MemoryLog, MemoryNetwork, MemorySnapshots};
use muster_raft_store::{
    Force, Handle, MemberChange, MembershipError, Peer, SnapshotPolicy, WallClock,
};

use crate::support::counter::{Add, Counter};
use crate::support::{TIMEOUT, config, eventually};

/// Replicas by position; ids count from 1.
struct Group {
    network: MemoryNetwork,
    replicas: Vec<Handle<Counter>>,
}

fn peer(id: u64) -> Peer {
    Peer::new(id, format!("replica-{id}"))
}

impl Group {
    /// Three voters.
    async fn start() -> Self {
        let mut group = Self {
            network: MemoryNetwork::new(),
            replicas: Vec::new(),
        };
        for id in 1..=3 {
            group.open(id).await;
        }
        let members = (1..=3).map(peer).collect();
        group.replicas[0].initialize(members).await.unwrap();
        group
    }

    /// Opens another replica, which belongs to no group; it must be the next one.
    async fn open(&mut self, id: u64) {
        self.open_with(id, Arc::new(MemorySnapshots::new())).await;
    }

    async fn open_with(&mut self, id: u64, snapshots: Arc<dyn SnapshotDisk>) {
        let mut config = config(id, Path::new("unused"));
        config.snapshots = SnapshotPolicy {
            snapshot_every_entries: 50,
            keep_entries: 5,
            ..SnapshotPolicy::default()
        };
        let environment = Environment {
            log: Arc::new(MemoryLog::new()),
            snapshots,
            transport: Arc::new(self.network.clone()),
            clock: Arc::new(WallClock),
            fresh_incarnation: id,
        };
        let opened = Handle::open_on::<ProductionRuntime>(config, environment).await;
        let handle = opened.unwrap();
        self.network.connect(id, &handle);
        self.replicas.push(handle);
    }

    fn handle(&self, id: u64) -> &Handle<Counter> {
        &self.replicas[usize::try_from(id).unwrap() - 1]
    }

    /// Id of the leader among these.
    async fn leader(&self, among: &[u64]) -> u64 {
        eventually("a leader", async || {
            let mut ids = among.iter().copied();
            ids.find(|id| self.handle(*id).leadership().borrow().is_self)
        })
        .await
    }

    /// Cuts replicas off from all others.
    fn isolate(&self, ids: &[u64]) {
        let all = 1..=self.replicas.len() as u64;
        for id in ids {
            for other in all.clone().filter(|other| other != id) {
                self.network.cut(*id, other);
                self.network.cut(other, *id);
            }
        }
    }

    async fn learns(&self, leader: u64, learner: u64) {
        eventually("the learner is level", async || {
            let change = MemberChange::Promote(learner);
            let planned = self.handle(leader).plan_change(&change, Force(false));
            planned.ok()
        })
        .await;
    }
}

fn voters(handle: &Handle<Counter>) -> Vec<u64> {
    handle
        .status()
        .voters
        .iter()
        .map(|voter| voter.id)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_joint_membership_left_by_a_dead_leader_is_finished_by_the_next() {
    let mut group = Group::start().await;
    let old = group.leader(&[1, 2, 3]).await;
    let others: Vec<u64> = (1..=3).filter(|id| *id != old).collect();
    let stays = others[0];
    for id in [4, 5] {
        group.open(id).await;
        group.handle(old).add_learner(peer(id)).await.unwrap();
        group.learns(old, id).await;
    }
    // The future voters are unreachable: the first half is written, and cannot be committed.
    group.isolate(&[4, 5]);
    let changing = group.handle(old).clone();
    let change =
        tokio::spawn(async move { changing.change_members(BTreeSet::from([stays, 4, 5])).await });
    eventually("the others hold the joint membership", async || {
        let joint = |id: &u64| group.handle(*id).status().membership_is_changing;
        others.iter().all(joint).then_some(())
    })
    .await;
    assert!(!group.handle(stays).status().membership_is_committed);
    let busy = group
        .handle(old)
        .plan_change(&MemberChange::Promote(4), Force(true));
    assert!(matches!(busy, Err(MembershipError::Refused(_))), "{busy:?}");
    group.network.heal();
    group.isolate(&[old]);

    let new = group.leader(&others).await;
    eventually("the joint membership is committed", async || {
        let status = group.handle(new).status();
        (status.membership_is_changing && status.membership_is_committed).then_some(())
    })
    .await;
    assert_eq!(group.handle(new).status().voter_sets.len(), 2);
    group.handle(new).finish_change().await.unwrap();
    eventually("the change is finished", async || {
        (voters(group.handle(stays)) == [stays, 4, 5]).then_some(())
    })
    .await;
    // Entries acknowledged by both majorities are present, and the group continues to work.
    let leader = group.leader(&[stays, 4, 5]).await;
    let done = group.handle(leader).propose(vec![Add::new("a", 1)]).await;
    assert_eq!(done, Ok(vec![1]));

    // The old leader returns and learns that it no longer belongs to the group.
    group.network.heal();
    let removal = eventually("the old leader knows of its removal", async || {
        group.handle(old).status().removal
    })
    .await;
    let members: Vec<u64> = removal.members.iter().map(|peer| peer.id).collect();
    assert_eq!(members, [stays, 4, 5]);
    eventually("it has stopped", async || {
        group
            .handle(old)
            .leadership()
            .borrow()
            .stopped
            .then_some(())
    })
    .await;
    assert!(change.await.unwrap().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_replica_answering_at_a_learners_address_is_named() {
    let mut group = Group::start().await;
    let leader = group.leader(&[1, 2, 3]).await;
    group.open(4).await;
    group.network.connect(5, group.handle(4));
    let refused = group.handle(leader).add_learner(peer(5)).await;
    let expected = MembershipError::UnexpectedPeer {
        peer: peer(5),
        detail: "replica 4".to_owned(),
    };
    assert_eq!(refused, Err(expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_isolated_replica_does_not_count_as_removed() {
    let mut group = Group::start().await;
    let leader = group.leader(&[1, 2, 3]).await;
    let cut = (1..=3).find(|id| *id != leader).unwrap();
    group.isolate(&[cut]);
    // The membership changes without it, and it stays a member.
    group.open(4).await;
    group.isolate(&[cut]);
    group.handle(leader).add_learner(peer(4)).await.unwrap();
    for _ in 0..100 {
        let added = group.handle(leader).propose(vec![Add::new("a", 1)]).await;
        added.unwrap();
    }
    group.network.heal();
    eventually("it follows", async || {
        let is_level = group.handle(cut).fork() == group.handle(leader).fork();
        is_level.then_some(())
    })
    .await;
    assert_eq!(group.handle(cut).status().removal, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_learner_catches_up_by_a_snapshot_and_with_data_of_its_own_it_is_refused() {
    let mut group = Group::start().await;
    let leader = group.leader(&[1, 2, 3]).await;
    for _ in 0..200 {
        let added = group.handle(leader).propose(vec![Add::new("a", 1)]).await;
        added.unwrap();
    }
    group.open(4).await;
    group.handle(leader).add_learner(peer(4)).await.unwrap();
    // Repeating the call changes nothing.
    group.handle(leader).add_learner(peer(4)).await.unwrap();
    group.learns(leader, 4).await;
    group
        .handle(leader)
        .change_members(BTreeSet::from([1, 2, 3, 4]))
        .await
        .unwrap();
    eventually("it has applied what is committed", async || {
        (group.handle(4).fork() == group.handle(leader).fork()).then_some(())
    })
    .await;

    group.handle(leader).remove_member(4).await.unwrap();
    let again = group.handle(leader).add_learner(peer(4)).await;
    assert!(
        matches!(&again, Err(MembershipError::Refused(why)) if why.contains("holds the data of a group")),
        "{again:?}"
    );
}

/// A disk whose first snapshot is not synced until the test allows it.
struct Slow {
    files: MemorySnapshots,
    gate: Arc<Mutex<Option<Gate>>>,
}

struct Gate {
    waits: SyncSender<()>,
    lets: Receiver<()>,
}

struct SlowFile {
    file: Box<dyn SnapshotWrite>,
    gate: Arc<Mutex<Option<Gate>>>,
}

impl Write for SlowFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl SnapshotWrite for SlowFile {
    fn finish(self: Box<Self>) -> io::Result<()> {
        let gate = self.gate.lock().unwrap().take();
        if let Some(gate) = gate {
            gate.waits.send(()).unwrap();
            let let_in = gate.lets.recv_timeout(TIMEOUT);
            let_in.map_err(|_| io::Error::other("the test ended before allowing the sync"))?;
        }
        self.file.finish()
    }
}

impl SnapshotDisk for Slow {
    fn create(&self, name: &str) -> io::Result<Box<dyn SnapshotWrite>> {
        Ok(Box::new(SlowFile {
            file: self.files.create(name)?,
            gate: Arc::clone(&self.gate),
        }))
    }

    fn publish(&self, name: &str) -> io::Result<()> {
        self.files.publish(name)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        self.files.open(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }

    fn discard_staged(&self) -> io::Result<()> {
        self.files.discard_staged()
    }
}

// Only one thread: blocking it would block everything.
#[tokio::test]
async fn syncing_a_received_snapshot_delays_nothing_else() {
    let mut group = Group::start().await;
    let leader = group.leader(&[1, 2, 3]).await;
    for _ in 0..200 {
        let added = group.handle(leader).propose(vec![Add::new("a", 1)]).await;
        added.unwrap();
    }
    eventually("the log begins behind a snapshot", async || {
        group.handle(leader).status().purged_index
    })
    .await;
    let (waits, waiting) = sync_channel(1);
    let (lets, let_in) = sync_channel(1);
    let gate = Gate {
        waits,
        lets: let_in,
    };
    let disk = Slow {
        files: MemorySnapshots::new(),
        gate: Arc::new(Mutex::new(Some(gate))),
    };
    group.open_with(4, Arc::new(disk)).await;
    group.handle(leader).add_learner(peer(4)).await.unwrap();
    eventually("the snapshot is to be synced", async || {
        waiting.try_recv().ok()
    })
    .await;
    lets.send(()).expect("it waits for permission");
    group.learns(leader, 4).await;
    eventually("it reports a snapshot", async || {
        group.handle(4).status().snapshot_index
    })
    .await;
}
