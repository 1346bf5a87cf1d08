//! Messages between the parts of a simulated cluster: over a network that loses, delays and repeats them.

pub mod gateway;
pub mod network;
pub mod peers;
pub mod transport;
