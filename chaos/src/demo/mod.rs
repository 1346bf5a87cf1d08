//! `muster demo`.

pub mod scoreboard;
pub mod timeline;
