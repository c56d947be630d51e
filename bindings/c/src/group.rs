//! Multicast groups of A1.

use std::ffi::c_char;
use std::sync::Mutex;
use std::time::Duration;

use freshwire::a1::{Group, GroupConfig, GroupTransportConfig, Rate};

use crate::a1_types::parse_interface;
use crate::border::{Failure, Out, Result, call, done, fw_status, get, get_or, put, text};
use crate::common::locks::{lock, take};
use crate::common::structures::fw_multicast_stats;
use crate::fanout::a1_config;
use crate::handles::{enter, fw_connection, fw_group, fw_node, fw_sender, fw_sink, handle};
use crate::policy::fw_policy;
use crate::sink::SinkObject;

pub(crate) struct GroupObject(Mutex<Option<Group>>);

handle!(fw_group, GroupObject, "group");

impl GroupObject {
    fn native(&self) -> Result<Group> {
        let group = lock(&self.0);
        group.clone().ok_or_else(|| Failure::new(fw_status::FW_CLOSED, "the group was freed"))
    }
}

/// Settings of a multicast group, from fw_group_config_default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fw_group_config {
    /// The multicast address and port, such as "239.255.0.1:5004".
    pub address: *const c_char,
    /// Network interface of the members, its number or IPv4 address as text; NULL for that of the first member's connection.
    pub interface: *const c_char,
    /// Sending rate of UDP payload. There is no congestion control: the network must provide it.
    pub rate: u64,
    /// Time for which a sent record is kept for repairs; its slot stays in use for that long.
    pub repair_for: u64,
    /// Largest UDP payload, at least 1200 bytes.
    pub datagram: u16,
    /// Number of networks to cross.
    pub hops: u8,
    /// 1: members on this machine receive the packets too.
    pub to_this_machine: u8,
}

/// Returns the default settings of a group with this address and rate: datagrams of 1200 bytes, repairs for a second, this network only.
#[unsafe(no_mangle)]
pub extern "C" fn fw_group_config_default(address: *const c_char, rate: u64) -> fw_group_config {
    fw_group_config {
        address,
        interface: std::ptr::null(),
        rate,
        repair_for: 1_000_000_000,
        datagram: 1200,
        hops: 1,
        to_this_machine: 1,
    }
}

impl fw_group_config {
    /// # Safety
    ///
    /// `address` is a string, `interface` NULL or a string.
    unsafe fn native(&self) -> Result<GroupConfig> {
        // SAFETY: as the caller promises.
        let address = unsafe { text("address", self.address) }?;
        let address =
            address.parse().map_err(|error| Failure::invalid(format!("address {address}: {error}")))?;
        let transport = GroupTransportConfig::new(address, Rate::from_bits_per_sec(self.rate))
            .datagram(self.datagram)
            .repair_for(Duration::from_nanos(self.repair_for));
        let config = GroupConfig::from(transport).hops(self.hops).to_this_machine(self.to_this_machine != 0);
        if self.interface.is_null() {
            return Ok(config);
        }
        // SAFETY: as the caller promises.
        let interface = unsafe { text("interface", self.interface) }?;
        Ok(config.interface(parse_interface("interface", interface)?))
    }
}

/// Makes a multicast group for sending, without members.
///
/// # Safety
///
/// `config` points to valid settings; `group` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_node_group(
    node: fw_node,
    config: *const fw_group_config,
    group: *mut fw_group,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let group = unsafe { Out::new("group", group, fw_group::default()) }?;
        // SAFETY: as the caller promises.
        let config = unsafe { get("config", config) }?;
        // SAFETY: as the caller promises.
        let config = unsafe { config.native() }?;
        let native = node.find()?.native()?;
        let made = native.group(&config)?;
        group.put(enter(GroupObject(Mutex::new(Some(made))))?)
    })
}

/// Makes the peer of a connection of the same node a member until the connection ends. It receives records sent from now on.
#[unsafe(no_mangle)]
pub extern "C" fn fw_group_invite(group: fw_group, connection: fw_connection) -> fw_status {
    call(|| {
        let group = group.find()?.native()?;
        let connection = connection.find()?.native()?;
        Ok(done(group.invite(&connection)?))
    })
}

/// Writes the counters of a group. FW_CLOSED: the node has stopped.
///
/// # Safety
///
/// `stats` points to a writable structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_group_stats(group: fw_group, stats: *mut fw_multicast_stats) -> fw_status {
    call(|| {
        let known = group.find()?.native()?.stats();
        let known = known.ok_or_else(|| Failure::new(fw_status::FW_CLOSED, "the A1 node has stopped"))?;
        // SAFETY: as the caller promises.
        unsafe { put("stats", stats, known.into()) }
    })
}

/// Serves a multicast group from a free ring, which needs room for the records that the group keeps for repairs. Its fate FW_ACKED means
/// that a record was sent and that the time for its repair is over. `policy` may be NULL for FW_FIFO.
///
/// # Safety
///
/// `policy` is NULL or points to a valid policy; `sink` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sender_add_a1_group(
    sender: fw_sender,
    group: fw_group,
    policy: *const fw_policy,
    linger: u64,
    sink: *mut fw_sink,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let sink = unsafe { Out::new("sink", sink, fw_sink::default()) }?;
        let object = sender.find()?;
        let group = group.find()?.native()?;
        // SAFETY: as the caller promises.
        let policy = unsafe { get_or("policy", policy, fw_policy::default) }?;
        // SAFETY: as the caller promises.
        let policy = unsafe { policy.make() }?;
        let id = policy.serve(|policy| {
            let config = a1_config(policy, linger);
            let made = object.with(|sender| sender.add_a1_group(&group, config).map_err(Failure::from))?;
            enter(SinkObject::new(object, made))
        })?;
        sink.put(id)
    })
}

/// Frees a group, which ends it unless a sink has it.
#[unsafe(no_mangle)]
pub extern "C" fn fw_group_free(group: fw_group) -> fw_status {
    call(|| {
        let object = group.free()?;
        Ok(done(take(&object.0)))
    })
}
