//! Line protocol with one JSON value per line, over any byte stream: used between ranks and for the agent.

use std::io::{Read, Write};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum length of a line: many times a roster of a thousand ranks.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Writes `message` and a line end.
pub(crate) fn write_line(stream: &mut impl Write, message: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(message).context("encode a message")?;
    line.push(b'\n');
    stream.write_all(&line).context("send a message")?;
    stream.flush().context("send a message")
}

/// Reads one line and no byte beyond: the following data may have another format.
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
