//! Multicast groups of A1.

use std::ffi::c_char;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use freshwire::a1::{Group, GroupConfig, GroupError, GroupTransportConfig, InviteError, Rate};

use crate::a1::{ConnectionObject, NodeObject};
use crate::a1_types::parse_interface;
use crate::border::{Failure, Result, call, fw_status, get, get_or, put, text};
use crate::fanout::a1_config;
use crate::handles::{Object, enter, find, free, fw_connection, fw_group, fw_node, fw_sender, fw_sink};
use crate::policy::fw_policy;
use crate::sender::{SenderObject, of_sender};
use crate::sink::SinkObject;

pub(crate) struct GroupObject(Mutex<Option<Group>>);

impl Object for GroupObject {
    const NAME: &'static str = "group";
}

impl GroupObject {
    fn native(&self) -> Result<Group> {
        let group = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Counters of a group. Bytes are UDP payload. Repairs are in fw_connection_stats of the members.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fw_multicast_stats {
    /// Packets sent to the group's address.
    pub packets_sent: u64,
    /// Bytes sent to the group's address.
    pub bytes_sent: u64,
    /// Of `packets_sent`, those that the operating system refused.
    pub packets_refused: u64,
    /// Open connections that were invited.
    pub members: u64,
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
        unsafe { put("group", group, fw_group::default()) }?;
        // SAFETY: as the caller promises.
        let config = unsafe { get("config", config) }?;
        // SAFETY: as the caller promises.
        let config = unsafe { config.native() }?;
        let native = find::<NodeObject>(node.id)?.native()?;
        let made = native.group(&config).map_err(|error| {
            let status = match error {
                GroupError::Config(_) => fw_status::FW_INVALID,
                GroupError::Stopped(_) => fw_status::FW_CLOSED,
                _ => fw_status::FW_SYSTEM,
            };
            Failure::new(status, error)
        })?;
        let id = enter(GroupObject(Mutex::new(Some(made))))?;
        // SAFETY: as the caller promises.
        unsafe { put("group", group, fw_group { id }) }?;
        Ok(fw_status::FW_OK)
    })
}

/// Makes the peer of a connection of the same node a member until the connection ends. It receives records sent from now on.
#[unsafe(no_mangle)]
pub extern "C" fn fw_group_invite(group: fw_group, connection: fw_connection) -> fw_status {
    call(|| {
        let group = find::<GroupObject>(group.id)?.native()?;
        let connection = find::<ConnectionObject>(connection.id)?.native()?;
        group.invite(&connection).map_err(|error| {
            let status = match error {
                InviteError::OtherNode => fw_status::FW_INVALID,
                _ => fw_status::FW_CLOSED,
            };
            Failure::new(status, error)
        })?;
        Ok(fw_status::FW_OK)
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
        let known = find::<GroupObject>(group.id)?.native()?.stats();
        let known = known.ok_or_else(|| Failure::new(fw_status::FW_CLOSED, "the A1 node has stopped"))?;
        let known = fw_multicast_stats {
            packets_sent: known.packets_sent,
            bytes_sent: known.bytes_sent,
            packets_refused: known.packets_refused,
            members: known.members as u64,
        };
        // SAFETY: as the caller promises.
        unsafe { put("stats", stats, known) }?;
        Ok(fw_status::FW_OK)
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
        unsafe { put("sink", sink, fw_sink::default()) }?;
        let object = find::<SenderObject>(sender.id)?;
        let group = find::<GroupObject>(group.id)?.native()?;
        // SAFETY: as the caller promises.
        let policy = unsafe { get_or("policy", policy, fw_policy::default) }?;
        // SAFETY: as the caller promises.
        let policy = unsafe { policy.make() }?;
        let id = policy.serve(|policy| {
            let config = a1_config(policy, linger);
            let made = object.with(|sender| sender.add_a1_group(&group, config).map_err(of_sender))?;
            enter(SinkObject::new(object, made))
        })?;
        // SAFETY: as the caller promises.
        unsafe { put("sink", sink, fw_sink { id }) }?;
        Ok(fw_status::FW_OK)
    })
}

/// Frees a group, which ends it unless a sink has it.
#[unsafe(no_mangle)]
pub extern "C" fn fw_group_free(group: fw_group) -> fw_status {
    call(|| {
        let object = free::<GroupObject>(group.id)?;
        let group = object.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(group);
        Ok(fw_status::FW_OK)
    })
}
