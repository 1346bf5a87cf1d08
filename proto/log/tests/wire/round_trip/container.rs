//! Arbitrary containers.

use muster_model::spec::{Container, Mount, PullPolicy};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::round_trip::strategies::text;

pub(super) fn container() -> impl Strategy<Value = Container> {
    let pull = prop_oneof![
        Just(PullPolicy::Missing),
        Just(PullPolicy::Always),
        Just(PullPolicy::Never),
    ];
    let mount = (text(), text(), any::<bool>()).prop_map(|(source, target, read_only)| Mount {
        source,
        target,
        read_only,
    });
    let names = (option::of(text()), option::of(text()), option::of(text()));
    let numbers = (option::of(any::<u64>()), any::<bool>());
    let lists = (vec(text(), 0..3), vec(mount, 0..3));
    (text(), pull, lists, names, numbers).prop_map(|(image, pull, lists, names, numbers)| {
        Container {
            image,
            pull,
            entrypoint: lists.0,
            mounts: lists.1,
            user: names.0,
            userns: names.1,
            shm_mib: numbers.0,
            gpus: names.2,
            init: numbers.1,
        }
    })
}
