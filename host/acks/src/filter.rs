//! The programs in the kernel: loading, attaching, counting.
#![allow(clippy::disallowed_methods, reason = "the system's links are waited for by its clock")]

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use aya::programs::tc::{SchedClassifierLinkId, TcAttachOptions, TcError};
use aya::programs::xdp::XdpLinkId;
use aya::programs::{
    LinkOrder, ProgramError, SchedClassifier, TcAttachType, TestRun as _, TestRunOptions, Xdp, XdpMode,
};
use aya::{Ebpf, EbpfError};

use crate::decision::{Config, Connection, Rule, Verdict};
use crate::interface::Interface;

/// The compiled `bpf/ack_filter.c`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/ack_filter.o");

/// Where arriving packets are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// In the device's driver, before the kernel makes a packet buffer.
    Xdp,
    /// At the ingress of the traffic control, behind it.
    Tc,
}

/// Which [`Hook`] to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HookChoice {
    /// XDP where the interface is one of a device and its driver has it, else tc. A veth has XDP too, but copies each packet for it,
    /// which costs more than an acknowledgement does.
    #[default]
    Auto,
    /// That one.
    Only(Hook),
}

/// Why a filter does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// The kernel did not let us.
    #[error(
        "the kernel does not permit eBPF to this user; run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
    )]
    NotPermitted,
    /// There is no such interface.
    #[error("there is no network interface {0}; `ip link` lists them")]
    NoInterface(String),
    /// Its packets have no Ethernet header, behind which the programs look.
    #[error(
        "packets of {0} have no Ethernet header (tun, PPP, WireGuard and other tunnels); filter at the interface below it"
    )]
    NoEthernet(String),
    /// The kernel does not say what kind of interface it is.
    #[error(
        "the kernel does not say what kind of interface {interface} is: {cause}; permit this program netlink sockets (AF_NETLINK)"
    )]
    Unknown {
        /// Its name.
        interface: String,
        /// The system's error. A part of the message, so that a chain of causes does not repeat it.
        cause: io::Error,
    },
    /// The kernel has no BPF links for tc.
    #[error("this kernel cannot attach to tc by a BPF link; Linux 6.6 or newer is needed")]
    NoTcx,
    /// The driver has no XDP.
    #[error("the driver of {0} has no native XDP; take tc")]
    NoXdp(String),
    /// The programs could not be loaded.
    #[error("cannot load the filter's programs: {0}")]
    Load(#[from] EbpfError),
    /// A program could not be loaded or attached.
    #[error("cannot attach the filter: {0}")]
    Program(#[from] ProgramError),
    /// A map could not be used.
    #[error("cannot use the filter's maps: {0}")]
    Map(#[from] MapError),
    /// The object lacks a program or a map.
    #[error("the filter's object lacks {0}; build it again by bpf/build.sh")]
    Incomplete(&'static str),
}

/// Counters since the programs were loaded; numbers only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    verdicts: [u64; Verdict::ALL.len()],
    /// Segments with data that were sent, before segmentation offload.
    pub segments: u64,
    /// Packets that they make.
    pub packets: u64,
}

impl Counters {
    /// How many packets had this verdict.
    pub fn of(&self, verdict: Verdict) -> u64 {
        self.verdicts[verdict as usize]
    }

    /// Acknowledgements that were dropped.
    pub fn dropped(&self) -> u64 {
        self.of(Verdict::Drop)
    }

    /// Packets of connections that the filter knows and that carried no data: dropped or not.
    pub fn acks(&self) -> u64 {
        let others = [Verdict::Other, Verdict::Unknown, Verdict::Data].map(|verdict| self.of(verdict));
        self.verdicts.iter().sum::<u64>() - others.iter().sum::<u64>()
    }

    /// The share of [`Counters::acks`] that was dropped, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.dropped() as f64 / self.acks().max(1) as f64
    }

    /// The same with `more` packets of a verdict; for tests of what reads counters.
    pub fn with(mut self, verdict: Verdict, more: u64) -> Self {
        self.verdicts[verdict as usize] += more;
        self
    }
}

/// The programs in the kernel, not attached to anything.
#[derive(Debug)]
pub struct LoadedFilter {
    ebpf: Ebpf,
}

impl LoadedFilter {
    /// Loads the programs with these settings.
    ///
    /// # Errors
    ///
    /// [`FilterError::NotPermitted`] without the capabilities; [`FilterError::Load`] and [`FilterError::Program`] where the kernel
    /// refuses the programs.
    pub fn new(config: &Config) -> Result<Self, FilterError> {
        let ebpf = Ebpf::load(OBJECT).map_err(|error| permitted(error, FilterError::Load))?;
        let mut loaded = Self { ebpf };
        loaded.configure(config)?;
        let xdp: &mut Xdp = program(&mut loaded.ebpf, XDP)?.try_into()?;
        xdp.load().map_err(|error| permitted(error, FilterError::Program))?;
        for name in [IN, OUT] {
            let classifier: &mut SchedClassifier = program(&mut loaded.ebpf, name)?.try_into()?;
            classifier.load().map_err(|error| permitted(error, FilterError::Program))?;
        }
        Ok(loaded)
    }

    /// Changes the settings.
    ///
    /// # Errors
    ///
    /// [`FilterError::Map`] if the kernel refuses.
    pub fn configure(&mut self, config: &Config) -> Result<(), FilterError> {
        let rule: u64 = match config.rule {
            Rule::Safe => 0,
            Rule::Cake => 1,
            Rule::Checkpoint => 2,
        };
        let shift = u64::from(config.window_shift.min(31));
        let first = u64::from_ne_bytes(pair(rule as u32, shift as u32));
        let mut map: Array<&mut MapData, [u64; 2]> = Array::try_from(self.map_mut("CONFIG")?)?;
        Ok(map.set(0, [first, config.guard_ns], 0)?)
    }

    /// The counters.
    ///
    /// # Errors
    ///
    /// [`FilterError::Map`] if the kernel refuses.
    pub fn counters(&self) -> Result<Counters, FilterError> {
        let map: PerCpuArray<&MapData, u64> = PerCpuArray::try_from(self.map("COUNTERS_MAP")?)?;
        let sum =
            |index: usize| -> Result<u64, FilterError> { Ok(map.get(&(index as u32), 0)?.iter().sum()) };
        let mut counters = Counters::default();
        for (index, verdict) in counters.verdicts.iter_mut().enumerate() {
            *verdict = sum(index)?;
        }
        counters.segments = sum(Verdict::ALL.len())?;
        counters.packets = sum(Verdict::ALL.len() + 1)?;
        Ok(counters)
    }

    /// Sets what is known of a connection.
    ///
    /// # Errors
    ///
    /// [`FilterError::Map`] if the kernel refuses.
    pub fn set_connection(
        &mut self,
        key: [u8; KEY_BYTES],
        connection: &Connection,
    ) -> Result<(), FilterError> {
        let c = connection;
        let words = [
            c.snd_nxt,
            c.quantum,
            c.mss,
            c.checkpoint,
            c.recover,
            u32::from(c.is_recovering),
            c.highest,
            c.passed,
            c.window,
            0,
        ];
        let mut value = [0; 6];
        for (place, two) in words.chunks(2).enumerate() {
            value[place] = u64::from_ne_bytes(pair(two[0], two[1]));
        }
        value[5] = c.passed_at;
        let mut map: HashMap<&mut MapData, [u8; KEY_BYTES], [u64; 6]> =
            HashMap::try_from(self.map_mut("CONNECTIONS")?)?;
        Ok(map.insert(key, value, 0)?)
    }

    /// The state of a connection; `None` if it is unknown.
    ///
    /// # Errors
    ///
    /// [`FilterError::Map`] if the kernel refuses.
    pub fn connection(&self, key: [u8; KEY_BYTES]) -> Result<Option<Connection>, FilterError> {
        let map: HashMap<&MapData, [u8; KEY_BYTES], [u64; 6]> = HashMap::try_from(self.map("CONNECTIONS")?)?;
        let value = match map.get(&key, 0) {
            Ok(value) => value,
            Err(MapError::KeyNotFound) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let word = |place: usize| {
            let bytes = value[place / 2].to_ne_bytes();
            let at = place % 2 * 4;
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Ok(Some(Connection {
            snd_nxt: word(0),
            quantum: word(1),
            mss: word(2),
            checkpoint: word(3),
            recover: word(4),
            is_recovering: word(5) != 0,
            highest: word(6),
            passed: word(7),
            window: word(8),
            passed_at: value[5],
        }))
    }

    /// Runs a program of arriving packets on a frame (`BPF_PROG_TEST_RUN`); `true` if it passes.
    ///
    /// # Errors
    ///
    /// [`FilterError::Program`] if the kernel refuses, as it does with frames below 14 bytes.
    pub fn run_arriving(&mut self, hook: Hook, frame: &[u8]) -> Result<bool, FilterError> {
        let options = TestRunOptions { data_in: Some(frame), ..TestRunOptions::new() };
        let returned = match hook {
            Hook::Xdp => {
                let xdp: &mut Xdp = program(&mut self.ebpf, XDP)?.try_into()?;
                xdp.test_run(options)?.return_value == XDP_PASS
            }
            Hook::Tc => {
                let classifier: &mut SchedClassifier = program(&mut self.ebpf, IN)?.try_into()?;
                classifier.test_run(options)?.return_value == TC_ACT_UNSPEC
            }
        };
        Ok(returned)
    }

    /// Runs the program of leaving packets on a frame (`BPF_PROG_TEST_RUN`), which segmentation offload would cut into packets
    /// with `packet_bytes` of data; 0 for none.
    ///
    /// # Errors
    ///
    /// As [`LoadedFilter::run_arriving`].
    pub fn run_leaving(&mut self, frame: &[u8], packet_bytes: u32) -> Result<(), FilterError> {
        let mut context = [0; SKB_BYTES];
        context[GSO_SIZE..GSO_SIZE + 4].copy_from_slice(&packet_bytes.to_ne_bytes());
        let options =
            TestRunOptions { data_in: Some(frame), ctx_in: Some(&context), ..TestRunOptions::new() };
        let classifier: &mut SchedClassifier = program(&mut self.ebpf, OUT)?.try_into()?;
        classifier.test_run(options)?;
        Ok(())
    }

    fn map(&self, name: &'static str) -> Result<&Map, FilterError> {
        self.ebpf.map(name).ok_or(FilterError::Incomplete(name))
    }

    fn map_mut(&mut self, name: &'static str) -> Result<&mut Map, FilterError> {
        self.ebpf.map_mut(name).ok_or(FilterError::Incomplete(name))
    }
}

/// A filter at a network interface. Dropping it detaches its programs, and so does the end of the process.
#[derive(Debug)]
pub struct Filter {
    loaded: LoadedFilter,
    interface: String,
    choice: HookChoice,
    attached: Option<Attached>,
}

#[derive(Debug)]
struct Attached {
    out: SchedClassifierLinkId,
    arriving: Arriving,
}

#[derive(Debug)]
enum Arriving {
    Xdp(XdpLinkId),
    Tc(SchedClassifierLinkId),
}

impl Filter {
    /// Loads the programs and attaches them to an interface.
    ///
    /// # Errors
    ///
    /// As [`LoadedFilter::new`] and [`Filter::attach`].
    pub fn new(interface: &str, choice: HookChoice, config: &Config) -> Result<Self, FilterError> {
        let mut filter = Self {
            loaded: LoadedFilter::new(config)?,
            interface: interface.to_owned(),
            choice,
            attached: None,
        };
        filter.attach()?;
        Ok(filter)
    }

    /// Attaches the programs; nothing happens if they are. The state of connections from before they were detached is
    /// out of date and is discarded.
    ///
    /// # Errors
    ///
    /// [`FilterError::NoInterface`]; [`FilterError::NoEthernet`]; [`FilterError::Unknown`]; [`FilterError::NoXdp`] where XDP alone is
    /// wanted and the driver has none; [`FilterError::NoTcx`] before Linux 6.6.
    pub fn attach(&mut self) -> Result<Hook, FilterError> {
        if let Some(attached) = &self.attached {
            return Ok(attached.hook());
        }
        let interface = Interface::ask(&self.interface).map_err(|cause| match cause.raw_os_error() {
            Some(ENODEV) => FilterError::NoInterface(self.interface.clone()),
            _ => FilterError::Unknown { interface: self.interface.clone(), cause },
        })?;
        if !interface.has_ethernet() {
            return Err(FilterError::NoEthernet(self.interface.clone()));
        }
        self.forget()?;
        let out = self.attach_tc(OUT, TcAttachType::Egress)?;
        let arriving = match self.choice {
            HookChoice::Only(Hook::Tc) => Arriving::Tc(self.attach_tc(IN, TcAttachType::Ingress)?),
            HookChoice::Only(Hook::Xdp) => {
                Arriving::Xdp(self.attach_xdp()?.ok_or_else(|| FilterError::NoXdp(self.interface.clone()))?)
            }
            HookChoice::Auto if !interface.has_device => {
                Arriving::Tc(self.attach_tc(IN, TcAttachType::Ingress)?)
            }
            HookChoice::Auto => match self.attach_xdp()? {
                Some(link) => Arriving::Xdp(link),
                None => Arriving::Tc(self.attach_tc(IN, TcAttachType::Ingress)?),
            },
        };
        let attached = Attached { out, arriving };
        let hook = attached.hook();
        self.attached = Some(attached);
        Ok(hook)
    }

    /// Detaches the programs: packets cost nothing. The counters stay.
    ///
    /// # Errors
    ///
    /// [`FilterError::Program`] if the kernel refuses.
    pub fn detach(&mut self) -> Result<(), FilterError> {
        let Some(Attached { out, arriving }) = self.attached.take() else { return Ok(()) };
        match arriving {
            Arriving::Xdp(link) => {
                let xdp: &mut Xdp = program(&mut self.loaded.ebpf, XDP)?.try_into()?;
                xdp.detach(link)?;
            }
            Arriving::Tc(link) => self.classifier(IN)?.detach(link)?,
        }
        self.classifier(OUT)?.detach(out)?;
        Ok(())
    }

    /// Where arriving packets are looked at; `None` while the filter is detached.
    pub fn hook(&self) -> Option<Hook> {
        self.attached.as_ref().map(Attached::hook)
    }

    /// The counters.
    ///
    /// # Errors
    ///
    /// As [`LoadedFilter::counters`].
    pub fn counters(&self) -> Result<Counters, FilterError> {
        self.loaded.counters()
    }

    fn classifier(&mut self, name: &'static str) -> Result<&mut SchedClassifier, FilterError> {
        Ok(program(&mut self.loaded.ebpf, name)?.try_into()?)
    }

    fn attach_tc(
        &mut self,
        name: &'static str,
        direction: TcAttachType,
    ) -> Result<SchedClassifierLinkId, FilterError> {
        let interface = self.interface.clone();
        let deadline = Instant::now() + RELEASE;
        loop {
            let options = TcAttachOptions::TcxOrder(LinkOrder::default());
            let error = match self.classifier(name)?.attach_with_options(&interface, direction, options) {
                Ok(link) => return Ok(link),
                Err(error) => error,
            };
            let code = match &error {
                ProgramError::TcError(TcError::IoError(error)) => error.raw_os_error(),
                error => os_error(error),
            };
            match code {
                // A process that is being started has a copy of the link of before, until it has become its program.
                Some(EEXIST) if Instant::now() < deadline => thread::sleep(RETRY),
                Some(ENODEV) => return Err(FilterError::NoInterface(interface)),
                Some(EINVAL) => return Err(FilterError::NoTcx),
                _ => return Err(permitted(error, FilterError::Program)),
            }
        }
    }

    /// `None` where the driver has no XDP, or somebody else's program is there.
    fn attach_xdp(&mut self) -> Result<Option<XdpLinkId>, FilterError> {
        let interface = self.interface.clone();
        let xdp: &mut Xdp = program(&mut self.loaded.ebpf, XDP)?.try_into()?;
        let deadline = Instant::now() + RELEASE;
        loop {
            match xdp.attach(&interface, XdpMode::Driver) {
                Ok(link) => return Ok(Some(link)),
                Err(ProgramError::UnknownInterface { name }) => return Err(FilterError::NoInterface(name)),
                Err(error) => match os_error(&error) {
                    Some(EPERM) => return Err(FilterError::NotPermitted),
                    Some(EBUSY) if Instant::now() < deadline => thread::sleep(RETRY),
                    _ => return Ok(None),
                },
            }
        }
    }

    fn forget(&mut self) -> Result<(), FilterError> {
        let mut map: HashMap<&mut MapData, [u8; KEY_BYTES], [u64; 6]> =
            HashMap::try_from(self.loaded.map_mut("CONNECTIONS")?)?;
        let keys: Vec<[u8; KEY_BYTES]> = map.keys().filter_map(Result::ok).collect();
        for key in keys {
            match map.remove(&key) {
                Ok(()) | Err(MapError::KeyNotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Attached {
    fn hook(&self) -> Hook {
        match self.arriving {
            Arriving::Xdp(_) => Hook::Xdp,
            Arriving::Tc(_) => Hook::Tc,
        }
    }
}

/// How many eBPF programs hang at tc of an interface by links: at its ingress, at its egress.
///
/// # Errors
///
/// [`FilterError::Program`] if there is no such interface, or the kernel is older than 6.6.
pub fn tc_programs(interface: &str) -> Result<[usize; 2], FilterError> {
    let count =
        |direction| SchedClassifier::query_tcx(interface, direction).map(|(_, programs)| programs.len());
    Ok([count(TcAttachType::Ingress)?, count(TcAttachType::Egress)?])
}

fn program<'a>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut aya::programs::Program, FilterError> {
    ebpf.program_mut(name).ok_or(FilterError::Incomplete(name))
}

/// What to say of an error: a missing capability, or the error itself.
fn permitted<E: std::error::Error + 'static>(error: E, other: fn(E) -> FilterError) -> FilterError {
    if os_error(&error) == Some(EPERM) { FilterError::NotPermitted } else { other(error) }
}

/// The system's error at the bottom of another.
fn os_error(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(code) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(code);
        }
        next = error.source();
    }
    None
}

fn pair(first: u32, second: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    bytes
}

/// Bytes of a connection's key: local and remote address (IPv4 in the first four of 16), local and remote port, four zeros.
pub const KEY_BYTES: usize = 40;

/// How long a link of before may still be there, and how often to look.
const RELEASE: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(5);

const XDP: &str = "acks_xdp";
const IN: &str = "acks_in";
const OUT: &str = "acks_out";

const XDP_PASS: u32 = 2;
const TC_ACT_UNSPEC: u32 = u32::MAX;

/// Size of `struct __sk_buff` (linux/bpf.h), and the place of the size of packets after segmentation offload.
const SKB_BYTES: usize = 192;
const GSO_SIZE: usize = 176;

const EPERM: i32 = 1;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
