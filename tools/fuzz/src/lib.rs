//! Checks of every decoder on arbitrary input. `make fuzz` runs them on libFuzzer's inputs (`cargo-fuzz/`, a
//! workspace of its own, since it is built with the fuzzer's flags); a test runs them on the seeds.
//! A target panics where a decoder does, where it allocates more memory than its input justifies
//! ([`bounded`]), and where a value differs after it was written and read again ([`same_again`]). libFuzzer's
//! `-timeout` limits the time.

mod memory;
mod targets;
mod wrapped;

use std::fmt::{Debug, Display};

pub use targets::{check, names};

use memory::bounded;
use wrapped::{backup, framed, lz4, snapshot};

/// Memory that any decoder may allocate, in bytes: buffers of constant size.
pub(crate) const SMALL: usize = 4 << 20;
/// Additional memory of an LZ4 reader: the frame's header alone may require blocks of up to 4 MiB.
pub(crate) const WITH_LZ4: usize = 48 << 20;

/// Checks a decoder that returns its value as this build encodes it: decoding and encoding the result must
/// not change it.
pub(crate) fn same_again<E: Display>(bytes: &[u8], decode: impl Fn(&[u8]) -> Result<Vec<u8>, E>) {
    let Ok(written) = decode(bytes) else { return };
    let again = or_panic(decode(&written), "what was written is refused");
    assert_eq!(again, written, "the value read again differs");
}

/// Unwraps a result that must be `Ok`.
pub(crate) fn or_panic<T, E: Display>(result: Result<T, E>, what: &str) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Asserts that a value is unchanged after it was written and read again.
pub(crate) fn assert_same<T: PartialEq + Debug>(again: &T, value: &T) {
    assert_eq!(again, value, "the value read again differs");
}

/// Splits off the byte that chooses among several decoders.
#[must_use]
pub(crate) fn choice(data: &[u8]) -> Option<(usize, &[u8])> {
    let (choice, rest) = data.split_first()?;
    Some((usize::from(*choice), rest))
}

/// Decodes and re-encodes a protobuf message with its generated code.
#[must_use]
pub(crate) fn message<M: prost::Message + Default>(bytes: &[u8]) -> Option<M> {
    M::decode(bytes).ok()
}
