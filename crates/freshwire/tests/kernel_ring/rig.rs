//! One sink over loopback, and records that tell whether they are whole.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use freshwire::engine::EngineThread;
use freshwire::sink::{Carrier, CarrierInUse};
use freshwire::{Engine, Fate, Meta, PushError, RingConfig, Sender, Sink, SinkConfig, now};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Nothing that is tested takes longer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes of a record: a number, again and again.
pub(crate) const LEN: usize = 1400;

/// Slots of the rings.
pub(crate) const SLOTS: u32 = 512;

/// The numbers of records that only fill the window begin here.
pub(crate) const FILLERS: u64 = 1_000_000;

/// What a peer takes at least without reading, by Linux's default.
const SMALLEST_WINDOW: u64 = 60_000;

pub(crate) fn pair(address: &str) -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(address)?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let far = listener.accept()?.0;
    far.set_read_timeout(Some(TIMEOUT))?;
    Ok((near, far))
}

pub(crate) struct Rig {
    pub(crate) sender: Sender,
    pub(crate) sink: Sink,
    pub(crate) far: TcpStream,
    pub(crate) fates: BTreeMap<u64, Fate>,
    fillers: u64,
    _engine: EngineThread,
}

pub(crate) fn check(holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(what().into()) }
}

pub(crate) fn same<T: PartialEq + std::fmt::Debug>(seen: &T, expected: &T) -> Result<()> {
    check(seen == expected, || format!("{seen:?} instead of {expected:?}"))
}

pub(crate) fn payload(seq: u64) -> Vec<u8> {
    seq.to_be_bytes().repeat(LEN / 8)
}

pub(crate) fn meta(seq: u64) -> Meta {
    Meta { seq, generated: now(), ..Meta::default() }
}

pub(crate) fn due_in(seq: u64, left: Duration) -> Meta {
    Meta { deadline: now() + left, ..meta(seq) }
}

impl Rig {
    /// A sink that has to have this carrier.
    pub(crate) fn new(config: SinkConfig, carrier: CarrierInUse) -> Result<Self> {
        Self::at("127.0.0.1:0", config, carrier)
    }

    pub(crate) fn at(address: &str, config: SinkConfig, carrier: CarrierInUse) -> Result<Self> {
        Self::with_slots(SLOTS, address, config, carrier)
    }

    /// The same with a ring of this size.
    pub(crate) fn with_slots(
        slots: u32,
        address: &str,
        config: SinkConfig,
        carrier: CarrierInUse,
    ) -> Result<Self> {
        let engine = Engine::new()?.spawn()?;
        let (near, far) = pair(address)?;
        let ring = RingConfig { rings: 2, slots, block_bytes: 1500, blocks: slots };
        let mut sender = Sender::new(&ring, &engine.handle())?;
        let sink = sender.add_sink(near, config.carrier(Carrier::Auto))?;
        same(&sink.stats().carrier, &carrier)?;
        Ok(Self { sender, sink, far, fates: BTreeMap::new(), fillers: 0, _engine: engine })
    }

    pub(crate) fn push(&mut self, seq: u64) -> Result<()> {
        self.push_with(&meta(seq))
    }

    /// Pushes when there is room.
    pub(crate) fn push_patiently(&mut self, seq: u64) -> Result<()> {
        let give_up = now() + TIMEOUT;
        while let Err(error) = self.sender.push(self.sink.id(), &payload(seq), &meta(seq)) {
            let is_full = matches!(error, PushError::Full | PushError::OutOfBlocks);
            check(is_full && now() < give_up, || format!("record {seq}: {error}"))?;
            // Pause: until the next look.
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    pub(crate) fn push_with(&mut self, meta: &Meta) -> Result<()> {
        self.sender.push(self.sink.id(), &payload(meta.seq), meta)?;
        Ok(())
    }

    /// Pushes records until the peer, who does not read, has no room for another.
    pub(crate) fn fill_window(&mut self) -> Result<()> {
        loop {
            let seq = FILLERS + self.fillers;
            self.push_with(&meta(seq))?;
            self.fillers += 1;
            // A guest on a busy host pauses as well: a stall within the smallest window is no full window.
            let patience = now() + Duration::from_millis(500);
            while self.sink.stats().finished < self.fillers {
                if now() > patience && self.fillers * LEN as u64 > SMALLEST_WINDOW {
                    return Ok(());
                }
                // Pause: until the next look.
                std::thread::sleep(Duration::from_millis(2));
            }
            check(self.fillers < u64::from(SLOTS), || "the peer's window has no end".to_owned())?;
        }
    }

    /// The numbers of the next records that arrive, each found whole; those that only fill the window are left out.
    pub(crate) fn read(&mut self, count: usize) -> Result<Vec<u64>> {
        let mut seen = Vec::new();
        while seen.len() < count {
            let seq = self.read_one(0)?.ok_or("the stream ended")?;
            if seq < FILLERS {
                seen.push(seq);
            }
        }
        Ok(seen)
    }

    /// Reads one record that has `head` bytes of framing before it.
    pub(crate) fn read_one(&mut self, head: usize) -> Result<Option<u64>> {
        let mut record = vec![0; head + LEN];
        let mut got = 0;
        while got < record.len() {
            match self.far.read(&mut record[got..])? {
                0 if got == 0 => return Ok(None),
                0 => return Err(format!("the stream ended {got} bytes into a record").into()),
                more => got += more,
            }
        }
        let (length, record) = record.split_at(head);
        check(head == 0 || length == (LEN as u32).to_be_bytes(), || format!("length {length:?}"))?;
        let mut number = [0; 8];
        number.copy_from_slice(&record[..8]);
        let seq = u64::from_be_bytes(number);
        check(record == payload(seq), || format!("record {seq} is torn"))?;
        Ok(Some(seq))
    }

    /// Waits until these records have a fate.
    pub(crate) fn await_fates(&mut self, seqs: impl IntoIterator<Item = u64>) -> Result<()> {
        let give_up = now() + TIMEOUT;
        for seq in seqs {
            while !self.fates.contains_key(&seq) {
                match self.sender.poll_fate(self.sink.id())? {
                    Some(fate) => {
                        self.fates.insert(fate.seq, fate);
                    }
                    // Pause: until the next look.
                    None => std::thread::sleep(Duration::from_millis(2)),
                }
                check(now() < give_up, || {
                    format!(
                        "record {seq} has no fate, after {:?}: {:?}",
                        self.fates.keys().last(),
                        self.sink.stats()
                    )
                })?;
            }
        }
        Ok(())
    }
}
