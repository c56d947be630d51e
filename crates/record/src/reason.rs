use std::fmt;

/// Why a record was dropped. The numbers are those of `spec/ring.md` and `spec/a1.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Reason {
    /// Its deadline had passed.
    Expired,
    /// It was predicted to arrive after its deadline.
    PredictedLate,
    /// Its time window had ended.
    WindowEnd,
    /// Its layer was shed so that more important records get through.
    LayerShed,
    /// A newer record took its place.
    Superseded,
    /// A record that it depends on was dropped.
    ReferenceLost,
    /// The application, or a second party, dropped it.
    Application,
    /// It was abandoned in progress, at a chunk boundary.
    Abandoned,
    /// The ring or the connection was closed before it was committed.
    Closed,
    /// The sender ended while it had the record in hand.
    SenderLost,
    /// The process that was editing it ended.
    HolderLost,
    /// Its descriptor was not valid.
    Invalid,
    /// The connection broke.
    ConnectionLost,
    /// A code without a name: from [`FIRST_CUSTOM`](Self::FIRST_CUSTOM) on the application's own, below that of a later
    /// release. Use [`from_code`](Self::from_code), which never puts the code of a named reason here.
    Other(u8),
}

impl Reason {
    /// Every reason with a name, in the order of the codes, which begin with 1.
    pub const ALL: [Self; 13] = [
        Self::Expired,
        Self::PredictedLate,
        Self::WindowEnd,
        Self::LayerShed,
        Self::Superseded,
        Self::ReferenceLost,
        Self::Application,
        Self::Abandoned,
        Self::Closed,
        Self::SenderLost,
        Self::HolderLost,
        Self::Invalid,
        Self::ConnectionLost,
    ];

    /// The first code that is the application's own.
    pub const FIRST_CUSTOM: u8 = 128;

    /// The number in shared memory and on the wire.
    #[inline]
    pub const fn code(self) -> u8 {
        match self {
            Self::Expired => 1,
            Self::PredictedLate => 2,
            Self::WindowEnd => 3,
            Self::LayerShed => 4,
            Self::Superseded => 5,
            Self::ReferenceLost => 6,
            Self::Application => 7,
            Self::Abandoned => 8,
            Self::Closed => 9,
            Self::SenderLost => 10,
            Self::HolderLost => 11,
            Self::Invalid => 12,
            Self::ConnectionLost => 13,
            Self::Other(code) => code,
        }
    }

    /// The reason with this number. 0 means "not dropped", so a dropped record that has it is [`Invalid`](Self::Invalid).
    #[inline]
    pub const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Invalid,
            1..=13 => Self::ALL[code as usize - 1],
            _ => Self::Other(code),
        }
    }

    /// The name used in logs, metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::PredictedLate => "predicted-late",
            Self::WindowEnd => "window-end",
            Self::LayerShed => "layer-shed",
            Self::Superseded => "superseded",
            Self::ReferenceLost => "reference-lost",
            Self::Application => "application",
            Self::Abandoned => "abandoned",
            Self::Closed => "closed",
            Self::SenderLost => "sender-lost",
            Self::HolderLost => "holder-lost",
            Self::Invalid => "invalid",
            Self::ConnectionLost => "connection-lost",
            Self::Other(Self::FIRST_CUSTOM..) => "custom",
            Self::Other(_) => "unknown",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_reasons_are_inverse() {
        for code in 1..=u8::MAX {
            let reason = Reason::from_code(code);
            assert_eq!(reason.code(), code);
            assert_eq!(Reason::ALL.contains(&reason), code <= 13, "{code}");
        }
        assert_eq!(Reason::from_code(0), Reason::Invalid);
    }

    #[test]
    fn codes_and_names_are_those_of_the_specification() {
        let specification = include_str!("../../../spec/ring.md");
        for reason in Reason::ALL {
            let row = format!("\n| {} | {reason} |", reason.code());
            assert!(specification.contains(&row), "{row} is not in spec/ring.md");
        }
    }

    #[test]
    fn only_a_code_of_the_application_is_custom() {
        let names = [13, 14, 127, 128, 255].map(|code| Reason::from_code(code).name());
        assert_eq!(names, ["connection-lost", "unknown", "unknown", "custom", "custom"]);
    }
}
