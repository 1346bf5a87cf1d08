//! Checks of every decoder on any input. `make fuzz` feeds them what libFuzzer makes up (`cargo-fuzz/`, a workspace of its own, since
//! it is built with the fuzzer's flags); a test feeds them the seeds.
//!
//! A target panics where a decoder does, where it takes more memory than its input can stand for ([`bounded`]), and where
//! what was read is not what is read again after it was written ([`same_again`]). libFuzzer's `-timeout` watches the time.

mod memory;
mod targets;
mod wrapped;

use std::fmt::{Debug, Display};

pub use targets::{check, names};

use memory::bounded;
use wrapped::{backup, framed, lz4, snapshot};

/// Memory that any decoder may take, in bytes: buffers of constant size.
pub(crate) const SMALL: usize = 4 << 20;
/// Memory that a reader of LZ4 may take beside: the frame's head alone asks for blocks of up to 4 MiB.
pub(crate) const WITH_LZ4: usize = 48 << 20;

/// A decoder that gives what it read as this build writes it: what it wrote it must read, and write again.
pub(crate) fn same_again<E: Display>(bytes: &[u8], decode: impl Fn(&[u8]) -> Result<Vec<u8>, E>) {
    let Ok(written) = decode(bytes) else { return };
    let again = or_panic(decode(&written), "what was written is refused");
    assert_eq!(again, written, "what was read again is another");
}

/// The value of what must have gone well.
pub(crate) fn or_panic<T, E: Display>(result: Result<T, E>, what: &str) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// That a value, written and read again, is the same.
pub(crate) fn assert_same<T: PartialEq + Debug>(again: &T, value: &T) {
    assert_eq!(again, value, "what was read again is another");
}

/// Splits the byte that chooses among several decoders off the input.
#[must_use]
pub(crate) fn choice(data: &[u8]) -> Option<(usize, &[u8])> {
    let (choice, rest) = data.split_first()?;
    Some((usize::from(*choice), rest))
}

/// A protobuf message, read and written by its generated code.
#[must_use]
pub(crate) fn message<M: prost::Message + Default>(bytes: &[u8]) -> Option<M> {
    M::decode(bytes).ok()
}
