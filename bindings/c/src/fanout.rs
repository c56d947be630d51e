//! Sinks of a sender: adding them, and one payload for many.

use std::ffi::c_int;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use freshwire::choice::Choice;
use freshwire::{Meta, Sender, SinkConfig, SinkId};

use crate::border::{
    Failure, Out, Result, bytes, call, duplicate, fw_status, get, get_or, put, put_if_wanted, slice,
};
use crate::common::failures::Classified;
use crate::handles::{enter, find, fw_connection, fw_sender, fw_sink};
use crate::meta::fw_meta;
use crate::policy::fw_policy;
use crate::sender::SenderObject;
use crate::sink::SinkObject;
use crate::types::{FW_DEFAULT, fw_sink_config, fw_sink_config_default};

/// Serves a connected TCP socket from a free ring. The descriptor is duplicated: the caller may close it, and read the client's
/// data from it, but nothing else may write to it. `config` may be NULL for the default.
///
/// # Safety
///
/// `config` is NULL or points to valid settings; `sink` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sender_add_sink(
    sender: fw_sender,
    fd: c_int,
    config: *const fw_sink_config,
    sink: *mut fw_sink,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let sink = unsafe { Out::new("sink", sink, fw_sink::default()) }?;
        let object = sender.find()?;
        // SAFETY: as the caller promises.
        let config = unsafe { get_or("config", config, || fw_sink_config_default()) }?;
        // SAFETY: as the caller promises.
        let policy = unsafe { config.policy.make() }?;
        let id = policy.serve(|policy| {
            // SAFETY: as the caller promises.
            let settings = unsafe { config.apply(SinkConfig::new(policy)) }?;
            let stream = TcpStream::from(duplicate(fd)?);
            let made = object.with(|sender| sender.add_sink(stream, settings).map_err(Failure::from))?;
            enter(SinkObject::new(object, made))
        })?;
        sink.put(id)
    })
}

/// Serves the other end of an A1 connection from a free ring. `policy` may be NULL for FW_FIFO. `linger` is the time for a freed
/// sink to deliver the records in progress.
///
/// # Safety
///
/// `policy` is NULL or points to a valid policy; `sink` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sender_add_a1_sink(
    sender: fw_sender,
    connection: fw_connection,
    policy: *const fw_policy,
    linger: u64,
    sink: *mut fw_sink,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let sink = unsafe { Out::new("sink", sink, fw_sink::default()) }?;
        // SAFETY: as the caller promises.
        let policy = unsafe { get_or("policy", policy, fw_policy::default) }?;
        // SAFETY: as the caller promises.
        unsafe { add_a1_sink(sender, connection, &fw_a1_sink_config { policy, linger, departures: 0 }, sink) }
    })
}

/// Settings of a sink over A1, from fw_a1_sink_config_default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fw_a1_sink_config {
    /// Selects the record to send, to drop or to wait for.
    pub policy: fw_policy,
    /// Time for a freed sink to deliver the records in progress; FW_DEFAULT leaves the default.
    pub linger: u64,
    /// 1: fates say when the packet with the record's last byte entered the queueing discipline and left for the device (Linux 6.13 or
    /// newer).
    pub departures: u8,
}

/// Returns the default settings, with the policy that sends everything in order.
#[unsafe(no_mangle)]
pub extern "C" fn fw_a1_sink_config_default() -> fw_a1_sink_config {
    fw_a1_sink_config { policy: fw_policy::default(), linger: FW_DEFAULT, departures: 0 }
}

/// As fw_sender_add_a1_sink, with all settings. FW_SYSTEM where the kernel cannot note departures.
///
/// # Safety
///
/// `config` points to valid settings; `sink` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sender_add_a1_sink_with(
    sender: fw_sender,
    connection: fw_connection,
    config: *const fw_a1_sink_config,
    sink: *mut fw_sink,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let sink = unsafe { Out::new("sink", sink, fw_sink::default()) }?;
        // SAFETY: as the caller promises.
        let config = unsafe { get("config", config) }?;
        // SAFETY: as the caller promises.
        unsafe { add_a1_sink(sender, connection, &config, sink) }
    })
}

/// # Safety
///
/// The policy in `config` is valid.
unsafe fn add_a1_sink(
    sender: fw_sender,
    connection: fw_connection,
    config: &fw_a1_sink_config,
    sink: Out<fw_sink>,
) -> Result<fw_status> {
    let object = sender.find()?;
    let connection_object = connection.find()?;
    let connection = connection_object.native()?;
    // SAFETY: as the caller promises.
    let policy = unsafe { config.policy.make() }?;
    let id = policy.serve(|policy| {
        let config = a1_config(policy, config.linger).departures(config.departures != 0);
        let made = object.with(|sender| sender.add_a1_sink(&connection, config).map_err(Failure::from))?;
        connection_object.mark_used();
        enter(SinkObject::new(object, made))
    })?;
    sink.put(id)
}

/// Queues one payload for several sinks of a sender, copied once. `meta` may be NULL. `seq`, if it is not NULL, gets the
/// record's number, and `missed`, if it is not NULL, the status of each sink: FW_OK, FW_FULL or FW_CLOSED.
///
/// # Safety
///
/// `sinks` points to `count` handles, `data` to `len` bytes; `meta` and `seq` are NULL or point to a valid value, `missed` is
/// NULL or points to room for `count` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sender_push_to_all(
    sender: fw_sender,
    sinks: *const fw_sink,
    count: usize,
    data: *const u8,
    len: usize,
    meta: *const fw_meta,
    seq: *mut u64,
    missed: *mut fw_status,
) -> fw_status {
    let put = |sender: &mut Sender, ids: Vec<SinkId>, meta: &Meta| {
        // SAFETY: as the caller promises.
        let payload = unsafe { bytes(data, len) }?;
        sender.push_to_all(ids, payload, meta).map_err(Failure::from)
    };
    // SAFETY: as the caller promises.
    unsafe { to_all(sender, Sinks { sinks, count, missed }, meta, seq, put) }
}

/// Replaces a value in several sinks of a sender, as fw_sink_replace does in each, with one number and one wake-up of the engine. `meta`
/// has the key. `seq`, if it is not NULL, gets the record's number, and `missed`, if it is not NULL, the status of each sink:
/// FW_OK, FW_FULL or FW_CLOSED.
///
/// # Safety
///
/// As fw_sender_push_to_all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sender_replace_to_all(
    sender: fw_sender,
    sinks: *const fw_sink,
    count: usize,
    data: *const u8,
    len: usize,
    meta: *const fw_meta,
    seq: *mut u64,
    missed: *mut fw_status,
) -> fw_status {
    let put = |sender: &mut Sender, ids: Vec<SinkId>, meta: &Meta| {
        // SAFETY: as the caller promises.
        let payload = unsafe { bytes(data, len) }?;
        sender.replace_to_all(ids, payload, meta).map_err(Failure::from)
    };
    // SAFETY: as the caller promises.
    unsafe { to_all(sender, Sinks { sinks, count, missed }, meta, seq, put) }
}

/// Several sinks, and room for their statuses.
pub(crate) struct Sinks {
    pub(crate) sinks: *const fw_sink,
    pub(crate) count: usize,
    pub(crate) missed: *mut fw_status,
}

/// The sinks of a sender behind these handles, and what the sender calls them.
pub(crate) fn ids_of(
    sender: &Arc<SenderObject>,
    sinks: &[fw_sink],
) -> Result<(Vec<Arc<SinkObject>>, Vec<SinkId>)> {
    let objects: Result<Vec<Arc<SinkObject>>> = sinks.iter().map(|sink| find(sink.id)).collect();
    let objects = objects?;
    if objects.iter().any(|sink| !Arc::ptr_eq(sink.sender(), sender)) {
        return Err(Failure::invalid("a sink belongs to another sender"));
    }
    let ids = objects.iter().map(|sink| sink.id()).collect();
    Ok((objects, ids))
}

/// Queues one payload for several sinks.
///
/// # Safety
///
/// As `fw_sender_push_to_all`.
pub(crate) unsafe fn to_all(
    sender: fw_sender,
    Sinks { sinks, count, missed }: Sinks,
    meta: *const fw_meta,
    seq: *mut u64,
    put_all: impl FnOnce(&mut Sender, Vec<SinkId>, &Meta) -> Result<usize>,
) -> fw_status {
    call(|| {
        let object = sender.find()?;
        // SAFETY: as the caller promises.
        let sinks = unsafe { slice(sinks, count) }?;
        // SAFETY: as the caller promises.
        let meta = unsafe { get_or("meta", meta, fw_meta::default) }?;
        let (objects, ids) = ids_of(&object, sinks)?;
        let mut statuses = vec![fw_status::FW_OK; count];
        let number = object.with(|sender| {
            let meta = sender.producer().number(&meta.meta());
            put_all(sender, ids, &meta)?;
            for &(id, error) in sender.missed() {
                let named = objects.iter().zip(&mut statuses).find(|(sink, _)| sink.id() == id);
                if let Some((_, status)) = named {
                    *status = error.kind().into();
                }
            }
            Ok(meta.seq)
        })?;
        // SAFETY: as the caller promises.
        unsafe { put_if_wanted("seq", seq, || Ok(number)) }?;
        if !missed.is_null() {
            for (at, status) in statuses.into_iter().enumerate() {
                // SAFETY: as the caller promises, there is room for `count` values.
                let place = unsafe { missed.add(at) };
                // SAFETY: likewise.
                unsafe { put("missed", place, status) }?;
            }
        }
        Ok(fw_status::FW_OK)
    })
}

/// Settings of a sink for a connection or a group.
pub(crate) fn a1_config(policy: Box<dyn Choice>, linger: u64) -> freshwire::a1::SinkConfig {
    let config = freshwire::a1::SinkConfig::new(policy);
    if linger == FW_DEFAULT { config } else { config.linger(Duration::from_nanos(linger)) }
}
