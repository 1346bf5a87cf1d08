//! Arbitrary ways of running tasks.

use muster_core::spec::Execution;
use proptest::option;
use proptest::prelude::*;

use super::container::container;

pub(super) fn execution() -> impl Strategy<Value = Execution> {
    let said = option::of(container()).prop_map(|container| Execution { container });
    prop_oneof![Just(Execution::default()), said]
}
