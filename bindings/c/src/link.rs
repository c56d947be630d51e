//! The emulated link, for tests.

use std::ffi::{c_char, c_int};
use std::net::ToSocketAddrs;
use std::os::fd::IntoRawFd;
use std::time::Duration;

use freshwire_link::{Config, Direction, Loss};
use freshwire_netns::DirectionSnapshot;
use freshwire_netns::standalone::{End, StandaloneLink};
use freshwire_record::Rate;

use crate::border::{Failure, Out, Result, call, done, fw_status, get_or, nanos, put, text};
use crate::handles::{enter, fw_link, handle};
use crate::types::FW_DEFAULT;

pub(crate) struct LinkObject {
    link: StandaloneLink,
}

handle!(fw_link, LinkObject, "link");

/// Zero, as a rate: nothing passes until the rate is changed.
pub const FW_OUTAGE: u64 = 0;

/// One direction of a link.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct fw_link_direction {
    /// Bits per second, counting whole IP packets, such as fw_rate_parse reads; FW_DEFAULT is no limit.
    pub rate: u64,
    /// Delay; FW_DEFAULT is none.
    pub delay: u64,
    /// Bytes that may wait for the rate: what does not fit is dropped. FW_DEFAULT is 15000.
    pub queue: u64,
    /// Share of the packets that are lost, from 0 to 1.
    pub loss: f64,
    /// Mean length of a run of lost packets; 0 loses them singly.
    pub burst: f64,
    /// Share of the packets that arrive later than the others, from 0 to 1. Packets behind them overtake them.
    pub reorder: f64,
    /// How much later.
    pub reorder_by: u64,
}

/// Settings of a link, from fw_link_config_default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fw_link_config {
    /// From the near end to the far one.
    pub up: fw_link_direction,
    /// From the far end to the near one.
    pub down: fw_link_direction,
    /// Decides which packets are lost: the same seed loses the same packets.
    pub seed: u64,
    /// Address of a server of this machine, such as "127.0.0.1:8000", to be reached through the link at fw_link_port; or NULL.
    pub to: *const c_char,
}

/// FW_NEAR or FW_FAR.
pub type fw_end = u32;
/// The end with the address 10.77.0.1.
pub const FW_NEAR: fw_end = 0;
/// The end with the address 10.77.0.2.
pub const FW_FAR: fw_end = 1;

/// FW_UP or FW_DOWN.
pub type fw_direction = u32;
/// From the near end to the far one.
pub const FW_UP: fw_direction = 0;
/// From the far end to the near one.
pub const FW_DOWN: fw_direction = 1;

/// What a link has done in one direction. Lengths are those of IP packets.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fw_link_counters {
    /// Packets that came.
    pub offered_packets: u64,
    /// Their bytes.
    pub offered_bytes: u64,
    /// Packets that were delivered.
    pub delivered_packets: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Packets lost on the wire.
    pub lost_packets: u64,
    /// Packets that found the queue full.
    pub dropped_packets: u64,
    /// Bytes that wait now.
    pub queued_bytes: u64,
    /// Most bytes that ever waited.
    pub queue_peak_bytes: u64,
    /// Longest that a packet waited; UINT64_MAX behind an outage without end.
    pub queue_delay_max: u64,
}

/// What a link has done so far.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fw_link_account {
    /// From the near end to the far one.
    pub up: fw_link_counters,
    /// From the far end to the near one.
    pub down: fw_link_counters,
    /// 99th percentile of the time by which this machine delivered packets too late.
    pub late: u64,
}

fn rate(bits: u64) -> Option<Rate> {
    (bits != FW_DEFAULT).then(|| Rate::from_bits_per_sec(bits))
}

impl fw_link_direction {
    const DEFAULT: Self = Self {
        rate: FW_DEFAULT,
        delay: FW_DEFAULT,
        queue: FW_DEFAULT,
        loss: 0.0,
        burst: 0.0,
        reorder: 0.0,
        reorder_by: 0,
    };

    fn config(&self, seed: u64) -> Result<Config> {
        let mut builder =
            Config::builder().seed(seed).reorder(self.reorder, Duration::from_nanos(self.reorder_by));
        if let Some(rate) = rate(self.rate) {
            builder = builder.rate(rate);
        }
        if self.delay != FW_DEFAULT {
            builder = builder.delay(Duration::from_nanos(self.delay));
        }
        if self.queue != FW_DEFAULT {
            builder = builder.queue_bytes(self.queue);
        }
        if self.burst != 0.0 {
            builder = builder.loss(Loss::Burst { share: self.loss, mean_packets: self.burst });
        } else if self.loss != 0.0 {
            builder = builder.loss(Loss::Random { share: self.loss });
        }
        builder.build().map_err(Failure::invalid)
    }
}

fn direction(number: fw_direction) -> Result<Direction> {
    match number {
        FW_UP => Ok(Direction::Up),
        FW_DOWN => Ok(Direction::Down),
        other => Err(Failure::invalid(format!("direction={other}: FW_UP or FW_DOWN is wanted"))),
    }
}

/// Returns the settings of a link without limit, delay and loss.
#[unsafe(no_mangle)]
pub extern "C" fn fw_link_config_default() -> fw_link_config {
    let default = fw_link_direction::DEFAULT;
    fw_link_config { up: default, down: default, seed: 0, to: std::ptr::null() }
}

/// Reads a rate such as "300kbit", "6Mbit" or "512Kibit", as the command `freshwire link` does. Writes bits per second.
///
/// # Safety
///
/// `rate` is a string; `bits` points to a writable value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_rate_parse(rate: *const c_char, bits: *mut u64) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let rate: Rate = unsafe { text("rate", rate) }?.parse().map_err(Failure::invalid)?;
        // SAFETY: as the caller promises.
        unsafe { put("bits", bits, rate.bits_per_sec()) }
    })
}

/// Makes an emulated link, without root: Linux's own TCP and UDP at both ends, and a path between them. It runs in a process of its own,
/// which ends with the link and with this process. `config` may be NULL for the default. FW_NOT_PERMITTED where the system gives no network
/// namespaces.
///
/// # Safety
///
/// `config` is NULL or points to valid settings; `link` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_link_new(config: *const fw_link_config, link: *mut fw_link) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let link = unsafe { Out::new("link", link, fw_link::default()) }?;
        // SAFETY: as the caller promises.
        let config = unsafe { get_or("config", config, || fw_link_config_default()) }?;
        let (up, down) = (config.up.config(config.seed)?, config.down.config(config.seed)?);
        let to =
            if config.to.is_null() {
                None
            } else {
                // SAFETY: as the caller promises.
                let name = unsafe { text("to", config.to) }?;
                let address = name.to_socket_addrs().ok().and_then(|mut found| found.next());
                Some(address.ok_or_else(|| {
                    Failure::invalid(format!("to={name:?}: HOST:PORT of a server is wanted"))
                })?)
            };
        let made = StandaloneLink::start(up, down, to)?;
        link.put(enter(LinkObject { link: made })?)
    })
}

/// Makes a socket at an end of a link, with the arguments of socket(2). The descriptor is the caller's, to be closed; it is not inherited
/// by programs that are executed.
///
/// # Safety
///
/// `fd` points to a writable value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_link_socket(
    link: fw_link,
    end: fw_end,
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    fd: *mut c_int,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises. Tried before the socket is made.
        let fd = unsafe { Out::new("fd", fd, -1) }?;
        let end = match end {
            FW_NEAR => End::Near,
            FW_FAR => End::Far,
            other => return Err(Failure::invalid(format!("end={other}: FW_NEAR or FW_FAR is wanted"))),
        };
        let object = link.find()?;
        let socket = object.link.socket(end, domain, kind, protocol)?;
        fd.put(socket.into_raw_fd())
    })
}

/// Writes the port of 127.0.0.1 where the server `to` is reached through the link, over TCP and UDP. FW_NOTHING without `to`.
///
/// # Safety
///
/// `port` points to a writable value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_link_port(link: fw_link, port: *mut u16) -> fw_status {
    call(|| {
        let Some(address) = link.find()?.link.address() else {
            return Ok(fw_status::FW_NOTHING);
        };
        // SAFETY: as the caller promises.
        unsafe { put("port", port, address.port()) }
    })
}

/// Gives a direction another rate from now on, for what waits too: bits per second, FW_OUTAGE, or FW_DEFAULT for no limit.
#[unsafe(no_mangle)]
pub extern "C" fn fw_link_set_rate(link: fw_link, which: fw_direction, bits: u64) -> fw_status {
    call(|| {
        let which = direction(which)?;
        link.find()?.link.set_rate(which, rate(bits))?;
        Ok(fw_status::FW_OK)
    })
}

/// Writes what a link has done so far; of a closed one, at its end.
///
/// # Safety
///
/// `stats` points to a writable structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_link_stats(link: fw_link, stats: *mut fw_link_account) -> fw_status {
    call(|| {
        let now = link.find()?.link.snapshot()?;
        let now = fw_link_account {
            up: counters(&now.up),
            down: counters(&now.down),
            late: nanos(now.lateness.p99),
        };
        // SAFETY: as the caller promises.
        unsafe { put("stats", stats, now) }
    })
}

/// Ends a link; the handle stays valid for its counters until it is freed. FW_FAILED if this machine did not carry what the settings say,
/// such as because it was too busy: a test that depends on times is to be repeated. Sockets stay open, without a path between the ends.
#[unsafe(no_mangle)]
pub extern "C" fn fw_link_close(link: fw_link) -> fw_status {
    call(|| {
        let faults = link.find()?.link.close();
        match faults.is_empty() {
            true => Ok(fw_status::FW_OK),
            false => Err(Failure::new(fw_status::FW_FAILED, faults.join("; "))),
        }
    })
}

/// Frees a link, and ends it if it was not closed.
#[unsafe(no_mangle)]
pub extern "C" fn fw_link_free(link: fw_link) -> fw_status {
    call(|| link.free().map(done))
}

fn counters(direction: &DirectionSnapshot) -> fw_link_counters {
    let link = &direction.link;
    fw_link_counters {
        offered_packets: link.offered_packets,
        offered_bytes: link.offered_bytes,
        delivered_packets: link.delivered_packets,
        delivered_bytes: link.delivered_bytes,
        lost_packets: link.lost_packets,
        dropped_packets: link.queue_full_packets + link.wire_full_packets,
        queued_bytes: direction.queued_bytes,
        queue_peak_bytes: link.queue_peak_bytes,
        queue_delay_max: nanos(link.queue_delay_max),
    }
}
