//! Texts that users write in files and flags: a parsed value must be unchanged when parsed again from its own
//! text.

use muster_health::kernel_log::BusId;
use muster_job_file::human::{
    HumanSignal, compress, cpu_count, duration, expand, expand_all, format_duration, format_mib,
    signal, size, task_list,
};
use muster_job_file::strict_yaml::Positions;
use muster_model::ids::{GpuUuid, RequestId};

use crate::{assert_same, bounded, choice};

/// A list of a hundred thousand hosts with names of 253 bytes, twice.
const HOSTS: usize = 64 << 20;

fn check_hosts(list: &str) {
    let Ok(names) = expand(list) else {
        return;
    };
    assert_same(&expand(&compress(&names)), &Ok(names));
    drop(expand_all(&[list, list]));
}

fn check_amounts(text: &str) {
    if let Ok(read) = duration(text) {
        let ms = u64::try_from(read.as_millis()).unwrap_or(u64::MAX);
        assert_same(&duration(&format_duration(ms)), &Ok(read));
    }
    if let Ok(read) = size(text) {
        assert_same(&size(&format_mib(read.mib)), &Ok(read));
    }
    if let Ok(read) = cpu_count(text) {
        assert_same(&cpu_count(&read.to_string()), &Ok(read));
    }
}

fn check_signal(text: &str) {
    if let Ok(read) = signal(text) {
        let written = serde_json::to_string(&read).unwrap_or_default();
        assert_same(
            &serde_json::from_str::<HumanSignal>(&written).ok(),
            &Some(read),
        );
    }
}

fn check_ids(text: &str) {
    if let Ok(read) = text.parse::<GpuUuid>() {
        assert_same(&read.to_string().parse(), &Ok(read));
    }
    if let Ok(read) = text.parse::<RequestId>() {
        assert_same(&read.to_string().parse(), &Ok(read));
    }
    if let Some(read) = BusId::parse(text) {
        assert_same(&BusId::parse(&read.to_string()), &Some(read));
    }
}

/// Checks one input.
pub(crate) fn run(data: &[u8]) {
    let Some((kind, bytes)) = choice(data) else {
        return;
    };
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    bounded(data, HOSTS, || match kind {
        0 => check_hosts(text),
        1 => check_amounts(text),
        2 => check_signal(text),
        3 => check_ids(text),
        4 => drop(task_list(text)),
        _ => {
            let (path, document) = text.split_once('\n').unwrap_or((text, ""));
            let place = Positions::of(document).find(path);
            assert!(place.is_none_or(|(line, column)| line > 0 && column > 0));
        }
    });
}
