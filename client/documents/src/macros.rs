//! Definitions of documents that mirror a message, in one place: the fields, and where each comes from.

/// Documents with their conversions from messages. A field is taken from the field of the same name, or from the one
/// named after `=`, and converted by [`FromWire`](crate::wire::FromWire).
macro_rules! documents {
    (
        $(
            $(#[$attribute:meta])*
            pub struct $name:ident from $wire:ty {
                $(
                    $(#[$field_attribute:meta])*
                    $field:ident: $kind:ty $(= $source:ident)?,
                )*
            }
        )*
    ) => {
        $(
            $(#[$attribute])*
            #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
            pub struct $name {
                $(
                    $(#[$field_attribute])*
                    pub $field: $kind,
                )*
            }

            impl From<$wire> for $name {
                fn from(wire: $wire) -> Self {
                    Self {
                        $(
                            $field: crate::wire::FromWire::from_wire(source!(wire, $field $(, $source)?)),
                        )*
                    }
                }
            }

            from_wire!($name, $wire);
        )*
    };
}

/// The field of a message that a field of a document is taken from.
macro_rules! source {
    ($wire:ident, $field:ident) => {
        $wire.$field
    };
    ($wire:ident, $field:ident, $source:ident) => {
        $wire.$source
    };
}

/// Lets fields of messages become fields of documents by `From`; an absent message is an empty one.
macro_rules! from_wire {
    ($name:ty, $wire:ty) => {
        impl crate::wire::FromWire<$wire> for $name {
            fn from_wire(wire: $wire) -> Self {
                Self::from(wire)
            }
        }

        impl crate::wire::FromWire<Option<$wire>> for $name {
            fn from_wire(wire: Option<$wire>) -> Self {
                Self::from(wire.unwrap_or_default())
            }
        }
    };
}

/// An enumeration whose members are strings in documents. With `from`, it mirrors an enumeration of the wire. Members
/// of newer versions are `unknown`.
macro_rules! string_enum {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident from $wire:ty {
            $($variant:ident $text:tt,)*
        }
    ) => {
        string_enum! {
            $(#[$attribute])*
            pub enum $name {
                $($variant $text,)*
            }
        }

        impl From<$wire> for $name {
            fn from(wire: $wire) -> Self {
                type Wire = $wire;
                match wire {
                    $(Wire::$variant => Self::$variant,)*
                    Wire::Unspecified => Self::Unknown,
                }
            }
        }

        impl crate::wire::FromWire<i32> for $name {
            fn from_wire(wire: i32) -> Self {
                Self::from(<$wire>::try_from(wire).unwrap_or_default())
            }
        }

        impl crate::wire::FromWire<i32> for Option<$name> {
            fn from_wire(wire: i32) -> Self {
                let value: $name = crate::wire::FromWire::from_wire(wire);
                Some(value).filter(|value| *value != $name::Unknown)
            }
        }
    };
    (
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $($variant:ident $text:tt,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub enum $name {
            $(
                #[serde(rename = $text)]
                $variant,
            )*
            #[serde(other, rename = "unknown")]
            Unknown,
        }

        impl $name {
            /// The string in documents.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Unknown => "unknown",
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(self.as_str())
            }
        }
    };
}

/// Lists of documents read at a revision: `{revision, KEY: [row]}`.
macro_rules! lists {
    ($($(#[$attribute:meta])* pub struct $name:ident { $key:ident: $row:ty })*) => {
        $(
            $(#[$attribute])*
            #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
            pub struct $name {
                pub revision: u64,
                pub $key: Vec<$row>,
            }

            impl crate::list::Listed for $row {
                type List = $name;

                fn list(revision: u64, rows: Vec<Self>) -> $name {
                    $name { revision, $key: rows }
                }
            }
        )*
    };
}
