//! Arbitrary execution options.

use muster_model::spec::{CpuBinding, Execution, Secret, SecretForm, Ulimit, UlimitKind};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use crate::round_trip::strategies::container::container;
use crate::round_trip::strategies::text;

pub(super) fn execution() -> impl Strategy<Value = Execution> {
    let limit = (option::of(any::<u64>()), option::of(any::<u64>()))
        .prop_map(|(soft, hard)| Ulimit { soft, hard });
    let kind = proptest::sample::select(&UlimitKind::ALL[..]);
    let form = prop_oneof![
        text().prop_map(SecretForm::Variable),
        text().prop_map(SecretForm::File),
    ];
    let secret = (text(), form).prop_map(|(name, form)| Secret { name, form });
    let binding = prop_oneof![
        Just(CpuBinding::None),
        Just(CpuBinding::Cpus),
        Just(CpuBinding::Numa),
    ];
    let given = (
        option::of(container()),
        btree_map(kind, limit, 0..3),
        option::of(any::<u32>()),
        vec(secret, 0..3),
        binding,
    );
    let given = given.prop_map(
        |(container, ulimits, pids_max, secrets, binding)| Execution {
            container,
            ulimits,
            pids_max,
            secrets,
            binding,
        },
    );
    prop_oneof![Just(Execution::default()), given]
}
