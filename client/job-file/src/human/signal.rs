//! Signals: `USR1`, `SIGUSR1`, `10`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Named signals that a job may choose as its stop warning, with their numbers on Linux. Other signals are
/// written by number only.
const NAMES: [(&str, i32); 9] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("USR1", 10),
    ("USR2", 12),
    ("ALRM", 14),
    ("TERM", 15),
    ("CONT", 18),
    ("URG", 23),
];

/// A signal that is written by its name in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HumanSignal {
    /// Signal number.
    pub number: i32,
}

/// Parses a signal.
///
/// # Errors
/// Names the expected form.
pub fn signal(text: &str) -> Result<HumanSignal, String> {
    let name = text.strip_prefix("SIG").unwrap_or(text);
    let named = NAMES.iter().find(|(known, _)| *known == name);
    let number = named
        .map(|(_, number)| *number)
        .or_else(|| text.parse().ok());
    number
        .map(|number| HumanSignal { number })
        .ok_or_else(|| format!("`{text}` is not a signal (write USR1, USR2, INT, HUP or a number)"))
}

impl Serialize for HumanSignal {
    fn serialize<Target: Serializer>(&self, target: Target) -> Result<Target::Ok, Target::Error> {
        match NAMES.iter().find(|(_, number)| *number == self.number) {
            Some((name, _)) => target.serialize_str(name),
            None => target.serialize_i32(self.number),
        }
    }
}

impl<'de> Deserialize<'de> for HumanSignal {
    fn deserialize<Source: Deserializer<'de>>(source: Source) -> Result<Self, Source::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(i32),
            Text(String),
        }
        match Written::deserialize(source)? {
            Written::Number(number) => Ok(Self { number }),
            Written::Text(text) => signal(&text).map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for text in ["USR1", "SIGUSR1", "10"] {
            assert_eq!(signal(text), Ok(HumanSignal { number: 10 }), "{text}");
        }
        assert!(signal("usr1").is_err() && signal("").is_err());
        let written = serde_json::to_string(&[signal("INT").unwrap(), signal("31").unwrap()]);
        assert_eq!(written.unwrap(), r#"["INT",31]"#);
        let read: [HumanSignal; 2] = serde_json::from_str(r#"["INT",31]"#).unwrap();
        assert_eq!(read.map(|signal| signal.number), [2, 31]);
    }
}
