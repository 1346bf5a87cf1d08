//! System calls, and their substitutes on systems other than Unix.

#[cfg(not(unix))]
mod other;
#[cfg(unix)]
mod unix;

#[cfg(not(unix))]
pub(crate) use other::{RawTerminal, WindowChanges, kill_group, own_group, user_name, window_size};
#[cfg(unix)]
pub(crate) use unix::{RawTerminal, WindowChanges, kill_group, own_group, user_name, window_size};
