//! Values of keys: JSON, each with a format number. A reader accepts the formats it knows and must ignore
//! unknown fields: a field may be added without a new number.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Format of written records.
pub const FORMAT: u32 = 1;
/// Largest written value in bytes: etcd accepts requests of 1.5 MiB.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// A live replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    /// [`FORMAT`].
    pub format: u32,
    /// Replica id.
    pub id: u64,
    /// Address, `host:port`.
    pub address: String,
    /// Name of its machine, for operators; empty if unknown.
    pub name: String,
}

/// The leading replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// [`FORMAT`].
    pub format: u32,
    /// Replica id.
    pub id: u64,
    /// Address, `host:port`.
    pub address: String,
    /// Fencing token: the revision at which its leadership began.
    pub epoch: u64,
}

/// Initial members of a cluster. The key is created once and permanent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bootstrap {
    /// [`FORMAT`].
    pub format: u32,
    /// Addresses of the initial members, by id. The one with the lowest id initializes the group.
    pub members: BTreeMap<u64, String>,
}

/// Resources held by one unit of a job (a gang, or one independent task).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// [`FORMAT`].
    pub format: u32,
    /// The job.
    pub job: u64,
    /// The unit: 0 for a gang, else the index of its only task.
    pub unit: u32,
    /// Counts the unit's attempts from 1.
    pub attempt: u32,
    /// The attempt's fencing number.
    pub attempt_epoch: u64,
    /// The job's queue.
    pub queue: String,
    /// The job's user.
    pub user: String,
    /// Time of placement, in milliseconds since the Unix epoch.
    pub placed_at_ms: u64,
    /// Hosts of the tasks that have not ended, in order of rank.
    pub tasks: Vec<Task>,
    /// True: `tasks` is empty because the list would be too large for etcd.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tasks_left_out: bool,
}

/// Location of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Index in the job.
    pub task: u32,
    /// Host name.
    pub host: String,
    /// UUIDs of its GPUs.
    pub gpus: Vec<String>,
}

/// Encodes a record.
///
/// # Panics
/// Never: records consist of strings, numbers and lists of them.
pub fn encode<Record: Serialize>(record: &Record) -> String {
    serde_json::to_string(record).expect("a record has a form as JSON")
}

impl Allocation {
    /// Encodes the record, without its tasks if it would exceed [`VALUE_BYTES_MAX`] with them.
    #[must_use]
    pub fn encode(&self) -> String {
        let text = encode(self);
        if text.len() <= VALUE_BYTES_MAX {
            return text;
        }
        encode(&Self {
            tasks: Vec::new(),
            tasks_left_out: true,
            ..self.clone()
        })
    }
}

/// Decodes a record; none if its format is unknown or it is invalid.
#[must_use]
pub fn decode<Record: DeserializeOwned>(value: &[u8]) -> Option<Record> {
    #[derive(Deserialize)]
    struct Head {
        format: u32,
    }
    let head: Head = serde_json::from_slice(value).ok()?;
    (head.format == FORMAT)
        .then(|| serde_json::from_slice(value).ok())
        .flatten()
}

/// Text of an epoch in the key `epoch`, zero-padded so that text order is numeric order.
pub(crate) fn epoch_text(epoch: u64) -> String {
    format!("{epoch:020}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(tasks: usize) -> Allocation {
        let task = |task| Task {
            task,
            host: "node01".to_owned(),
            gpus: vec!["GPU-00000000-0000-0000-0000-000000000001".to_owned()],
        };
        Allocation {
            format: FORMAT,
            job: 12,
            unit: 0,
            attempt: 2,
            attempt_epoch: 40,
            queue: "default".to_owned(),
            user: "ada".to_owned(),
            placed_at_ms: 1_000,
            tasks: (0..u32::try_from(tasks).unwrap_or_default())
                .map(task)
                .collect(),
            tasks_left_out: false,
        }
    }

    #[test]
    fn records_match_the_documentation() {
        assert_eq!(
            allocation(1).encode(),
            "{\"format\":1,\"job\":12,\"unit\":0,\"attempt\":2,\"attempt_epoch\":40,\"queue\":\"default\",\
             \"user\":\"ada\",\"placed_at_ms\":1000,\"tasks\":[{\"task\":0,\"host\":\"node01\",\
             \"gpus\":[\"GPU-00000000-0000-0000-0000-000000000001\"]}]}"
        );
        let leader = Leader {
            format: FORMAT,
            id: 3,
            address: "c:7400".to_owned(),
            epoch: 9,
        };
        assert_eq!(
            encode(&leader),
            r#"{"format":1,"id":3,"address":"c:7400","epoch":9}"#
        );
        let bootstrap = Bootstrap {
            format: FORMAT,
            members: BTreeMap::from([(1, "a:1".to_owned())]),
        };
        assert_eq!(encode(&bootstrap), r#"{"format":1,"members":{"1":"a:1"}}"#);
    }

    #[test]
    fn a_record_too_large_for_etcd_is_written_without_its_tasks() {
        let text = allocation(20_000).encode();
        assert!(text.len() < VALUE_BYTES_MAX, "{}", text.len());
        let read: Option<Allocation> = decode(text.as_bytes());
        assert!(read.is_some_and(|it| it.tasks_left_out && it.tasks.is_empty()));
    }

    #[test]
    fn unknown_fields_are_ignored_and_newer_formats_refused() {
        let newer = br#"{"format":1,"id":1,"address":"a:1","name":"","zone":"x"}"#;
        assert!(decode::<Replica>(newer).is_some());
        let another = br#"{"format":2,"id":1,"address":"a:1","name":""}"#;
        assert!(decode::<Replica>(another).is_none());
        assert!(decode::<Replica>(b"nonsense").is_none());
    }

    #[test]
    fn epochs_sort_as_texts() {
        assert!(epoch_text(9) < epoch_text(10));
        assert!(epoch_text(u64::MAX).len() == epoch_text(0).len());
    }
}
