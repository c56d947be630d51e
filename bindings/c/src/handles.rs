//! The table of handles. A handle is a place and a generation: freeing it makes all copies of it invalid.

use std::any::Any;
use std::sync::{Arc, PoisonError, RwLock};

use crate::border::{Failure, Result, fw_status, watch_forks};
use crate::common::process::forks;

/// Most handles at a time.
const MAX_HANDLES: usize = 1 << 24;

/// The object of a handle.
pub(crate) trait Object: Send + Sync + Sized + 'static {
    /// For messages.
    const NAME: &'static str;
    type Handle;

    fn handle(id: u64) -> Self::Handle;
}

/// Says which object a handle names.
macro_rules! handle {
    ($handle:ident, $object:ident, $name:literal) => {
        impl $crate::handles::Object for $object {
            const NAME: &'static str = $name;
            type Handle = $handle;

            fn handle(id: u64) -> $handle {
                $handle { id }
            }
        }

        impl $handle {
            /// Looks the handle up.
            pub(crate) fn find(self) -> $crate::border::Result<std::sync::Arc<$object>> {
                $crate::handles::find(self.id)
            }

            /// Makes the handle invalid, and returns its object.
            pub(crate) fn free(self) -> $crate::border::Result<std::sync::Arc<$object>> {
                $crate::handles::free(self.id)
            }
        }
    };
}
pub(crate) use handle;

struct Place {
    generation: u32,
    /// Forks before it was made.
    forks: u64,
    object: Option<Arc<dyn Any + Send + Sync>>,
}

struct Table {
    places: Vec<Place>,
    free: Vec<u32>,
}

static TABLE: RwLock<Table> = RwLock::new(Table { places: Vec::new(), free: Vec::new() });

/// An engine: serves sinks on a thread of its own.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fw_engine {
    /// The number of the handle; 0 is none.
    pub id: u64,
}

/// A sender: puts records into the rings of its sinks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fw_sender {
    /// The number of the handle; 0 is none.
    pub id: u64,
}

/// A sink: one destination.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fw_sink {
    /// The number of the handle; 0 is none.
    pub id: u64,
}

/// Memory of a sender's arena for a record that the program writes there.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fw_reservation {
    /// The number of the handle; 0 is none.
    pub id: u64,
}

/// A receiver: reads a stream with chunked framing.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fw_receiver {
    /// The number of the handle; 0 is none.
    pub id: u64,
}

/// An A1 node.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fw_node {
    /// The number of the handle; 0 is none.
    pub id: u64,
}

/// An A1 connection.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fw_connection {
    /// The number of the handle; 0 is none.
    pub id: u64,
}

/// An A1 connection attempt that waits for a decision.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fw_incoming {
    /// The number of the handle; 0 is none.
    pub id: u64,
}

/// A gate: late choice up to where the receiving program reads.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fw_gate {
    /// The number of the handle; 0 is none.
    pub id: u64,
}

/// A multicast group that a node sends to.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fw_group {
    /// The number of the handle; 0 is none.
    pub id: u64,
}

/// A policy for pictures in several renditions, and what it knows of their stream.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fw_adaptive {
    /// The number of the handle; 0 is none.
    pub id: u64,
}

/// A stream of bytes over an A1 connection.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fw_stream {
    /// The number of the handle; 0 is none.
    pub id: u64,
}

/// An emulated link, for tests.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fw_link {
    /// The number of the handle; 0 is none.
    pub id: u64,
}

/// Enters an object, and returns its handle.
pub(crate) fn enter<T: Object>(object: T) -> Result<T::Handle> {
    watch_forks();
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    let at = match table.free.pop() {
        Some(at) => at,
        None if table.places.len() < MAX_HANDLES => {
            table.places.push(Place { generation: 0, forks: 0, object: None });
            u32::try_from(table.places.len() - 1).unwrap_or(u32::MAX)
        }
        None => return Err(Failure::new(fw_status::FW_FAILED, format!("{MAX_HANDLES} handles are in use"))),
    };
    let place = &mut table.places[at as usize];
    // The number 0 is no handle.
    place.generation = place.generation.wrapping_add(1).max(1);
    place.forks = forks();
    place.object = Some(Arc::new(object));
    Ok(T::handle(u64::from(place.generation) << 32 | u64::from(at)))
}

fn dead<T: Object>(id: u64) -> Failure {
    let words = match id {
        0 => format!("the {} is 0, which is no handle", T::NAME),
        _ => format!("{id:#x} is no {} any more, or never was one", T::NAME),
    };
    Failure::new(fw_status::FW_DEAD_HANDLE, words)
}

fn of_parent<T: Object>() -> Failure {
    let words = format!("the {} belongs to the process that was forked, with its threads", T::NAME);
    Failure::new(fw_status::FW_FORKED, words)
}

/// Looks a handle up.
pub(crate) fn find<T: Object>(id: u64) -> Result<Arc<T>> {
    let now = forks();
    // A child of a fork must not wait for a lock that a thread of its parent held.
    let table = match now {
        0 => TABLE.read().unwrap_or_else(PoisonError::into_inner),
        _ => TABLE.try_read().map_err(|_| of_parent::<T>())?,
    };
    let place = table.places.get(id as u32 as usize).filter(|place| u64::from(place.generation) == id >> 32);
    let place = place.filter(|place| place.object.is_some()).ok_or_else(|| dead::<T>(id))?;
    if place.forks != now {
        return Err(of_parent::<T>());
    }
    let object = place.object.clone().and_then(|object| object.downcast().ok());
    object.ok_or_else(|| dead::<T>(id))
}

/// Takes an object out; its destructor runs once no call uses it any more. In a child of the process that made it, it stays.
pub(crate) fn free<T: Object>(id: u64) -> Result<Arc<T>> {
    let object = find::<T>(id)?;
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    let at = id as u32;
    let place = table.places.get_mut(at as usize).filter(|place| u64::from(place.generation) == id >> 32);
    let taken = place.and_then(|place| place.object.take()).ok_or_else(|| dead::<T>(id))?;
    table.free.push(at);
    drop(table);
    drop(taken);
    Ok(object)
}
