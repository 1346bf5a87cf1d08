//! Tests of the engine and its decisions through the public interface: golden scripts and properties.
#![expect(clippy::unwrap_used, reason = "a failed test should panic")]

mod accusers;
mod apply_properties;
mod apply_scripts;
mod audit_finds;
mod cells;
mod decisions;
mod defragment;
mod entry;
mod excludes;
mod long_texts;
mod pauses;
mod placement_search;
mod recovery;
mod reported;
mod rights;
mod virtual_time;
