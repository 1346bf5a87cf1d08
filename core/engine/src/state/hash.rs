//! A hash of the whole state, compared between replicas at fixed revision intervals.
//!
//! It encodes every record, about a microsecond each, so it is computed on a clone, off the path that applies
//! commands. Maintaining it incrementally was tried and dropped: it cost `apply` a tenth of its speed even
//! when the hash was never requested. The hashed bytes never leave the process, so bincode may write them;
//! replicas whose records differ in layout must not be compared.

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::state::State;

impl State {
    /// Returns a hash of everything replicated: equal states have equal hashes at equal revisions on every
    /// replica of one build.
    ///
    /// Of the event log only the bounds are hashed: its contents follow from the commands. Derived data is
    /// not hashed.
    #[must_use]
    pub fn state_hash(&self) -> u64 {
        let mut chain = Chain::default();
        chain.add(&(self.revision, self.time, self.leadership));
        chain.add(&self.recovery);
        chain.add(self.replicas.as_ref());
        chain.add(&(self.requests.len(), self.requests.hash()));
        chain.add(&(
            self.events.floor(),
            self.events.losses(),
            self.events.newest(),
            self.events.len(),
        ));
        chain.add(&(self.history_half_life_ms, self.configured_topology.as_ref()));
        chain.add(&(&self.defragment, self.job_defaults));
        chain.add(&(self.reliability, self.ledger));
        let rules = &self.health_rules;
        chain.add(&(rules.revision, &rules.text, rules.shipped));
        for part in self.health.parts() {
            chain.add(&part);
        }
        chain.add_all(self.jobs.values());
        chain.add_all(self.hosts.values());
        for (name, user) in &self.users {
            chain.add(&(name, user.as_ref()));
        }
        for (id, token) in &self.join_tokens {
            chain.add(&(id, token.as_ref()));
        }
        chain.add_all(self.queues.values());
        chain.hash
    }
}

/// A hash over records in order.
#[derive(Default)]
struct Chain {
    hash: u64,
    scratch: Vec<u8>,
}

impl Chain {
    fn add(&mut self, record: &impl Serialize) {
        self.scratch.clear();
        bincode::serde::encode_into_std_write(
            record,
            &mut self.scratch,
            bincode::config::standard(),
        )
        .expect("records hold only types with derived serde, and writing to a vector cannot fail");
        self.hash = xxh3_64_with_seed(&self.scratch, self.hash);
    }

    fn add_all<'a, Record: Serialize + 'a>(
        &mut self,
        records: impl Iterator<Item = &'a std::sync::Arc<Record>>,
    ) {
        let mut count = 0u64;
        for record in records {
            self.add(record.as_ref());
            count += 1;
        }
        self.hash = xxh3_64_with_seed(&count.to_le_bytes(), self.hash);
    }
}
