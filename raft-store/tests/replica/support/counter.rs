//! A small state machine.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use muster_raft_store::{DecodeError, Peer, StateMachine};

/// Counts per name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) revision: u64,
    pub(crate) time_ms: u64,
    pub(crate) totals: BTreeMap<String, u64>,
}

/// Adds to a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Add {
    pub(crate) name: String,
    pub(crate) amount: u64,
}

impl Add {
    pub(crate) fn new(name: &str, amount: u64) -> Self {
        Self {
            name: name.to_owned(),
            amount,
        }
    }
}

impl StateMachine for Counter {
    type Command = Add;
    type Outcome = u64;

    fn encode_command(command: &Add, out: &mut Vec<u8>) {
        out.extend_from_slice(&command.amount.to_le_bytes());
        out.extend_from_slice(command.name.as_bytes());
    }

    fn decode_command(bytes: &[u8]) -> Result<Add, DecodeError> {
        let (amount, name) = bytes
            .split_first_chunk()
            .ok_or_else(|| DecodeError::malformed("a command is cut short"))?;
        let name = String::from_utf8(name.to_vec())
            .map_err(|error| DecodeError::malformed(error.to_string()))?;
        Ok(Add {
            name,
            amount: u64::from_le_bytes(*amount),
        })
    }

    fn apply(&mut self, time_ms: u64, command: &Add) -> u64 {
        self.revision += 1;
        self.time_ms = self.time_ms.max(time_ms);
        let total = self.totals.entry(command.name.clone()).or_default();
        *total += command.amount;
        *total
    }

    fn revision(&self) -> u64 {
        self.revision
    }

    fn time_ms(&self) -> u64 {
        0
    }

    fn carry_over(&mut self, _former: &[(Peer, bool)], _now_ms: u64) {
        self.revision += 1_000_000;
    }

    fn write_snapshot(&self, sink: &mut dyn Write) -> std::io::Result<()> {
        writeln!(sink, "{} {}", self.revision, self.time_ms)?;
        for (name, total) in &self.totals {
            writeln!(sink, "{total} {name}")?;
        }
        Ok(())
    }

    fn read_snapshot(source: &mut dyn Read) -> Result<Self, DecodeError> {
        let mut text = String::new();
        source.read_to_string(&mut text)?;
        let bad = || DecodeError::malformed("snapshot");
        let mut lines = text.lines();
        let (revision, time_ms) = lines.next().and_then(split).ok_or_else(bad)?;
        let mut counter = Self {
            revision,
            time_ms: time_ms.parse().map_err(|_| bad())?,
            totals: BTreeMap::new(),
        };
        for line in lines {
            let (total, name) = split(line).ok_or_else(bad)?;
            counter.totals.insert(name.to_owned(), total);
        }
        Ok(counter)
    }

    fn state_hash(&self) -> u64 {
        let mut hash = self.revision;
        for (name, total) in &self.totals {
            for byte in name.bytes().chain(total.to_le_bytes()) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        hash
    }
}

fn split(line: &str) -> Option<(u64, &str)> {
    let (number, rest) = line.split_once(' ')?;
    Some((number.parse().ok()?, rest))
}
