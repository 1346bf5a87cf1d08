//! Settings of both roles, as TOML, as JSON, and as values of a flag. Valid settings are unchanged when read
//! from their own JSON.

use std::path::Path;

use muster_scheduler::SchedulerConfig;
use muster_service::settings::{OptionValue, Origin, Settings, load, options};
use muster_worker::WorkerConfig;
use serde_json::Value;

use crate::{SMALL, assert_same, bounded, choice, or_panic};

/// Reads a file of this content; returns the settings as a tree.
fn read<S: Settings>(folder: &Path, name: &str, content: &[u8]) -> Option<Value> {
    let file = folder.join(name);
    or_panic(std::fs::write(&file, content), "a temporary folder");
    let loaded = load::<S>(Some(&file), &[]).map_err(|problems| problems.to_string());
    let tree = serde_json::to_value(loaded.ok()?.settings);
    Some(or_panic(tree, "settings are a tree"))
}

fn check_file<S: Settings>(name: &str, content: &[u8]) {
    let folder = or_panic(tempfile::tempdir(), "a temporary folder");
    let Some(tree) = read::<S>(folder.path(), name, content) else {
        return;
    };
    let text = tree.to_string();
    let again = read::<S>(folder.path(), "again.json", text.as_bytes());
    assert_same(&again, &Some(tree));
}

/// The first bytes choose the option, the rest are its values.
fn check_option<S: Settings>(bytes: &[u8]) {
    let Some((position, text)) = choice(bytes) else {
        return;
    };
    let options = options::<S>();
    let option = &options[position % options.len()];
    let texts = [String::from_utf8_lossy(text).into_owned()];
    let Ok(given) = OptionValue::read(option, &texts, Origin::Flag("--it".to_owned())) else {
        return;
    };
    drop(load::<S>(None, &[given]).map_err(|problems| problems.to_string()));
}

/// Checks one input.
pub(crate) fn run(data: &[u8]) {
    let Some((kind, content)) = choice(data) else {
        return;
    };
    bounded(data, SMALL, || match kind {
        0 => check_file::<SchedulerConfig>("it.toml", content),
        1 => check_file::<SchedulerConfig>("it.json", content),
        2 => check_option::<SchedulerConfig>(content),
        3 => check_file::<WorkerConfig>("it.toml", content),
        4 => check_file::<WorkerConfig>("it.json", content),
        _ => check_option::<WorkerConfig>(content),
    });
}
