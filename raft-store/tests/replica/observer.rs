//! An observer receives every entry, including those that arrive faster than a channel of revisions
//! reports.

use std::path::Path;
use std::sync::{Arc, Mutex};

use muster_raft_store::sim::{AppliedEntry, Environment, Observer, ProductionRuntime};
use muster_raft_store::storage::memory::{MemoryLog, MemoryNetwork, MemorySnapshots};
use muster_raft_store::{Handle, Peer, WallClock};

use crate::support::counter::{Add, Counter};
use crate::support::{config, leads};

/// Concurrent writes, one proposal each.
const WRITES: u64 = 50;

/// Positions, and the totals after each.
#[derive(Debug, Default)]
struct Onlooker {
    seen: Mutex<Vec<(u64, u64)>>,
}

impl Observer<Counter> for Onlooker {
    fn applied(&self, entry: &AppliedEntry<'_, Counter>) {
        assert_eq!(entry.commands.len(), entry.outcomes.len());
        let total = entry.state.totals.get("a").copied().unwrap_or(0);
        self.seen.lock().unwrap().push((entry.index, total));
    }

    fn installed(&self, _index: u64, _state: &Counter) {
        panic!("a group of one sends no snapshots");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_receives_every_entry_with_the_state_after_it() {
    let onlooker = Arc::new(Onlooker::default());
    let environment = Environment {
        log: Arc::new(MemoryLog::new()),
        snapshots: Arc::new(MemorySnapshots::new()),
        transport: Arc::new(MemoryNetwork::new()),
        clock: Arc::new(WallClock),
        fresh_incarnation: 7,
    };
    let opened = Handle::<Counter>::open_observed::<ProductionRuntime>(
        config(1, Path::new("unused")),
        environment,
        Arc::clone(&onlooker) as _,
    );
    let handle = opened.await.unwrap();
    let member = Peer::new(1, "replica-1".to_owned());
    handle.initialize(vec![member]).await.unwrap();
    leads(&handle).await;
    for _ in 0..WRITES {
        handle.propose(vec![Add::new("a", 1)]).await.unwrap();
    }
    let seen = onlooker.seen.lock().unwrap().clone();
    let indexes: Vec<u64> = seen.iter().map(|(index, _)| *index).collect();
    let first = indexes[0];
    assert_eq!(
        indexes,
        (first..first + indexes.len() as u64).collect::<Vec<_>>()
    );
    let totals = seen
        .iter()
        .map(|(_, total)| *total)
        .filter(|total| *total > 0);
    assert_eq!(totals.collect::<Vec<_>>(), (1..=WRITES).collect::<Vec<_>>());
}
