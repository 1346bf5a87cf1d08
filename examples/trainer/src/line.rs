//! One JSON value a line, over any byte stream: how ranks greet each other and how the agent is told.

use std::io::{Read, Write};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest line that is read: a roster of a thousand ranks fits many times.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Writes `message` and a line end.
pub(crate) fn write_line(stream: &mut impl Write, message: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(message).context("encode a message")?;
    line.push(b'\n');
    stream.write_all(&line).context("send a message")?;
    stream.flush().context("send a message")
}

/// Reads one line, and not a byte more: what follows it may be of another form.
pub(crate) fn read_line<T: DeserializeOwned>(stream: &mut impl Read) -> Result<T> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        if stream.read(&mut byte).context("receive a message")? == 0 {
            bail!("the connection was closed before a whole line came");
        }
        if byte[0] == b'\n' {
            break;
        }
        if line.len() == LINE_BYTES_MAX {
            bail!("a line is longer than {LINE_BYTES_MAX} bytes");
        }
        line.push(byte[0]);
    }
    serde_json::from_slice(&line).with_context(|| {
        format!(
            "understand the message {:?}",
            String::from_utf8_lossy(&line)
        )
    })
}
