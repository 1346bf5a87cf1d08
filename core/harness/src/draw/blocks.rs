//! Draws of immediate and planned blocks by admins.

use muster_model::command::{Block, BlockTarget, Command, Planned};
use muster_model::time::TimeMs;

use crate::draw::{Draw, REQUESTS, request_key};

impl Draw<'_> {
    fn target(&mut self) -> BlockTarget {
        if self.once_in(2) {
            return BlockTarget::Gpu(self.gpu());
        }
        let host = self.host();
        let name = self.state.host(host).map(|host| host.name.to_string());
        BlockTarget::Host(name.unwrap_or_else(|| "nowhere".to_owned()))
    }

    pub(super) fn block(&mut self) -> Command {
        let now = self.state.time;
        let expires_at = self.once_in(2).then(|| now.after(self.below(600_000)));
        let drain_deadline = self.once_in(2).then(|| now.after(self.below(60_000)));
        Command::Block {
            request: request_key(self.below(REQUESTS)),
            target: self.target(),
            block: Block {
                reason: "maintenance".to_owned(),
                author: "grace".to_owned(),
                evidence: String::new(),
                since: TimeMs::default(),
                expires_at,
                drain_deadline,
                planned: None,
            },
            spares_last: expires_at.is_none(),
        }
    }

    /// A planned block of a host.
    pub(super) fn planned_block(&mut self) -> Command {
        let host = self.host();
        let name = self.state.host(host).map(|host| host.name.to_string());
        let at = self.state.time.after(self.below(300_000));
        Command::Block {
            request: request_key(self.below(REQUESTS)),
            target: BlockTarget::Host(name.unwrap_or_else(|| "nowhere".to_owned())),
            block: Block {
                reason: "firmware".to_owned(),
                author: "grace".to_owned(),
                evidence: String::new(),
                since: TimeMs::default(),
                expires_at: self.once_in(2).then(|| at.after(1 + self.below(600_000))),
                drain_deadline: self.once_in(2).then(|| at.after(self.below(60_000))),
                planned: Some(Planned {
                    at,
                    notice_ms: self.below(60_000),
                }),
            },
            spares_last: false,
        }
    }

    pub(super) fn unblock(&mut self) -> Command {
        Command::Unblock {
            request: request_key(self.below(REQUESTS)),
            target: self.target(),
            author: "grace".to_owned(),
            planned: self.once_in(4),
        }
    }
}
