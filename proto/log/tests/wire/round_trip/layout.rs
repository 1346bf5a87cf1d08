//! Scheduling options of jobs, apart from resources.

use muster_model::spec::{Layout, Packing, Scheduling, Within};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::round_trip::strategies::{gpu, text};

fn within() -> impl Strategy<Value = Within> {
    (text(), any::<bool>()).prop_map(|(level, required)| Within { level, required })
}

pub(super) fn layout() -> impl Strategy<Value = Layout> {
    let numbers = (option::of(any::<u32>()), option::of(any::<u32>()));
    (numbers, option::of(within()), vec(gpu(), 0..3)).prop_map(
        |((count_min, within_tasks), within, gpus)| Layout {
            count_min,
            within,
            within_tasks,
            gpus,
        },
    )
}

pub(super) fn scheduling() -> impl Strategy<Value = Scheduling> {
    let packing = prop_oneof![
        Just(Packing::Pack),
        Just(Packing::Spread),
        Just(Packing::Exclusive),
    ];
    let times = (option::of(any::<u64>()), option::of(any::<u64>()));
    let names = (vec(text(), 0..3), vec(text(), 0..3), option::of(text()));
    let flags = (any::<bool>(), any::<bool>());
    (flags, times, option::of(within()), packing, names).prop_map(
        |(flags, times, within, packing, (hosts, hosts_excluded, pinned_cell))| Scheduling {
            opportunistic: flags.0,
            lazy_preemption: flags.1,
            run_time_ms_max: times.0,
            assembly_ms_max: times.1,
            within,
            packing,
            hosts,
            hosts_excluded,
            pinned_cell,
        },
    )
}
