//! What becomes of an acknowledgement: the rules, as pure functions. `bpf/ack_filter.c` is their counterpart in the kernel; tests
//! hold both together.

/// Which acknowledgements are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// One acknowledgement passes for each segment before segmentation offload, at least three for each window, and each that tells
    /// more than progress. The default.
    #[default]
    Safe,
    /// Among acknowledgements that report nothing but progress, one passes in each [`Config::guard_ns`]: the
    /// same rate that CAKE's `ack-filter` leaves of a queue as long as this. CAKE drops an acknowledgement
    /// when a newer one has come; a filter without a queue cannot wait for it.
    Cake,
    /// The checkpoint of Marigi and Irestål, "Optimizing Network Performance" (2012), section 4.4.1. An
    /// acknowledgement passes when it covers everything sent before the last one passed, about one in a round trip.
    /// It says nothing of windows and SACK. Beyond the thesis, everything passes until a retransmission is repaired:
    /// without that a sender stood still for 20 s.
    Checkpoint,
}

/// The settings of the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Which acknowledgements are dropped.
    pub rule: Rule,
    /// A window that differs by more than `1 / 2^window_shift` from the last one that passed is news; from 0 to 31.
    pub window_shift: u32,
    /// Nanoseconds since the last acknowledgement passed, after which the next one passes; at most `i64::MAX`.
    pub guard_ns: u64,
}

impl Default for Config {
    /// The safe rule, a quarter of the window, 4 ms: a sender makes segments of a millisecond, so the time seldom decides.
    fn default() -> Self {
        Self::new(Rule::Safe)
    }
}

impl Config {
    /// The settings of a rule: 4 ms, and 1 ms for [`Rule::Cake`], which has nothing else to go by.
    pub fn new(rule: Rule) -> Self {
        let guard_ns = if rule == Rule::Cake { 1_000_000 } else { 4_000_000 };
        Self { rule, window_shift: 2, guard_ns }
    }
}

/// What became of a packet, and why. The numbers are those of the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Verdict {
    /// Dropped.
    Drop,
    /// Passed: not TCP over IPv4 without options or IPv6 without extension headers, or marked by a router.
    Other,
    /// Passed: of a connection without data from here, or forgotten.
    Unknown,
    /// Passed: it carries data.
    Data,
    /// Passed: SYN, FIN, RST, ECE, CWR or another flag.
    Flags,
    /// Passed: SACK, or anything but timestamps.
    Options,
    /// Passed: older than one that was here, or beyond what was sent.
    Outside,
    /// Passed: says the same again.
    Duplicate,
    /// Passed: the window has changed, or is closed.
    Window,
    /// Passed: a retransmission is not yet repaired.
    Recovery,
    /// Passed: at most one packet is left unacknowledged.
    Last,
    /// Passed: it is time for one, by the bytes acknowledged.
    Spacing,
    /// Passed: none has passed for a while.
    Time,
}

impl Verdict {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::Drop,
        Self::Other,
        Self::Unknown,
        Self::Data,
        Self::Flags,
        Self::Options,
        Self::Outside,
        Self::Duplicate,
        Self::Window,
        Self::Recovery,
        Self::Last,
        Self::Spacing,
        Self::Time,
    ];

    /// A word for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Drop => "dropped",
            Self::Other => "other",
            Self::Unknown => "unknown",
            Self::Data => "data",
            Self::Flags => "flags",
            Self::Options => "options",
            Self::Outside => "outside",
            Self::Duplicate => "duplicate",
            Self::Window => "window",
            Self::Recovery => "recovery",
            Self::Last => "last",
            Self::Spacing => "spacing",
            Self::Time => "time",
        }
    }
}

/// The header of a packet from the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Its acknowledgement number.
    pub number: u32,
    /// Its window, not scaled.
    pub window: u16,
    /// Bytes of data in it.
    pub payload: u32,
    /// Its flags, the low byte.
    pub flags: u8,
    /// Its reserved bits, and the flag AE among them.
    pub reserved: u8,
    /// It has options beside aligned timestamps.
    pub has_options: bool,
}

/// A segment to the peer, before segmentation offload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number of its first byte.
    pub seq: u32,
    /// Bytes of data in it, at least 1.
    pub bytes: u32,
    /// Bytes in each of its packets; 0 if it is one packet.
    pub packet_bytes: u32,
}

/// The state of a connection, with the fields of the kernel's map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The sequence number after the last byte sent.
    pub snd_nxt: u32,
    /// Average bytes of a segment before segmentation offload.
    pub quantum: u32,
    /// Bytes of a packet.
    pub mss: u32,
    /// The number to be acknowledged before the next one passes, of [`Rule::Checkpoint`].
    pub checkpoint: u32,
    /// A retransmission is repaired once this is acknowledged.
    pub recover: u32,
    /// There was a retransmission that is not.
    pub is_recovering: bool,
    /// The highest acknowledgement number.
    pub highest: u32,
    /// The highest one that passed.
    pub passed: u32,
    /// The last window that passed, not scaled.
    pub window: u32,
    /// When the last one passed, in nanoseconds.
    pub passed_at: u64,
}

impl Connection {
    /// A connection of which the first segment is seen.
    pub fn new(segment: Segment) -> Self {
        let Segment { seq, bytes, packet_bytes } = segment;
        let end = seq.wrapping_add(bytes);
        Self {
            snd_nxt: end,
            quantum: bytes,
            mss: if packet_bytes > 0 { packet_bytes } else { bytes },
            checkpoint: end,
            recover: 0,
            is_recovering: false,
            highest: seq,
            passed: seq,
            window: 0,
            passed_at: 0,
        }
    }

    /// A segment leaves.
    pub fn on_segment(&mut self, segment: Segment) {
        let Segment { seq, bytes, packet_bytes } = segment;
        let end = seq.wrapping_add(bytes);
        if after(seq, self.snd_nxt) < 0 {
            self.recover = self.snd_nxt;
            self.is_recovering = true;
        }
        if packet_bytes > 0 {
            self.mss = packet_bytes;
        } else {
            self.mss = self.mss.max(bytes);
        }
        self.quantum = self.quantum - self.quantum / 4 + bytes / 4;
        if after(end, self.snd_nxt) > 0 {
            if after(self.checkpoint, self.highest) <= 0 {
                self.checkpoint = end;
            }
            self.snd_nxt = end;
        }
    }

    /// An acknowledgement arrives at `now`, in nanoseconds; it passes unless the verdict is [`Verdict::Drop`]. A FIN or RST ends
    /// the connection: the caller forgets it.
    pub fn on_ack(&mut self, ack: &Ack, config: &Config, now: u64) -> Verdict {
        if ack.flags & (FIN | RST) != 0 {
            return Verdict::Flags;
        }
        let verdict = self.decide(ack, config, now);
        self.remember(ack, verdict, now);
        verdict
    }

    /// The verdict about an acknowledgement.
    pub fn decide(&self, ack: &Ack, config: &Config, now: u64) -> Verdict {
        if ack.payload > 0 {
            return Verdict::Data;
        }
        if config.rule == Rule::Checkpoint {
            return self.decide_by_checkpoint(ack);
        }
        if ack.flags != ACK || ack.reserved != 0 {
            return Verdict::Flags;
        }
        if ack.has_options {
            return Verdict::Options;
        }
        let ahead = after(ack.number, self.highest);
        let left = after(self.snd_nxt, ack.number);
        if ahead < 0 || left < 0 {
            return Verdict::Outside;
        }
        if ahead == 0 {
            return Verdict::Duplicate;
        }
        if config.rule == Rule::Safe && self.is_news(ack.window, config) {
            return Verdict::Window;
        }
        if self.is_recovering && after(ack.number, self.recover) < 0 {
            return Verdict::Recovery;
        }
        if (left as u32) < self.mss.wrapping_mul(2) {
            return Verdict::Last;
        }
        let since = after(ack.number, self.passed);
        let flight = self.snd_nxt.wrapping_sub(self.passed) / PASSES_IN_A_WINDOW;
        if config.rule == Rule::Safe && (since < 0 || since as u32 >= self.quantum.min(flight)) {
            return Verdict::Spacing;
        }
        let waited = now.wrapping_sub(self.passed_at) as i64;
        if waited >= config.guard_ns as i64 { Verdict::Time } else { Verdict::Drop }
    }

    fn decide_by_checkpoint(&self, ack: &Ack) -> Verdict {
        if ack.flags & (SYN | FIN | RST) != 0 || ack.flags & ACK == 0 {
            return Verdict::Flags;
        }
        if ack.number == self.highest {
            return Verdict::Duplicate;
        }
        if after(ack.number, self.snd_nxt) > 0 {
            return Verdict::Outside;
        }
        if self.is_recovering && after(ack.number, self.recover) < 0 {
            return Verdict::Recovery;
        }
        if after(ack.number, self.checkpoint) >= 0 { Verdict::Spacing } else { Verdict::Drop }
    }

    /// The window is closed, or differs from the last one that passed by more than the hysteresis.
    fn is_news(&self, window: u16, config: &Config) -> bool {
        let window = u32::from(window);
        let slack = self.window >> config.window_shift;
        window == 0 || window + slack < self.window || window > self.window + slack
    }

    fn remember(&mut self, ack: &Ack, verdict: Verdict, now: u64) {
        if ack.flags & ACK == 0 || verdict == Verdict::Outside {
            return;
        }
        if after(ack.number, self.highest) > 0 {
            self.highest = ack.number;
        }
        if self.is_recovering && after(ack.number, self.recover) >= 0 {
            self.is_recovering = false;
        }
        if verdict == Verdict::Drop {
            return;
        }
        if after(ack.number, self.checkpoint) >= 0 {
            self.checkpoint = self.snd_nxt;
        }
        self.passed = self.highest;
        self.window = u32::from(ack.window);
        self.passed_at = now;
    }
}

/// How far `a` is after `b`, in the circle of sequence numbers (RFC 9293, section 3.4).
fn after(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b) as i32
}

/// A sender makes no segment larger than a third of its window (Linux: `tcp_tso_win_divisor`), and needs as many acknowledgements.
const PASSES_IN_A_WINDOW: u32 = 3;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
