//! Policies: those of the library, and functions of the caller.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use freshwire::choice::{self, Choice, Decision, FromFn, LinkView, Order, Reason, Record, Rule};
use freshwire::{Rate, Timestamp};

use crate::adaptive::AdaptiveObject;
use crate::border::{Failure, Result, nanos, slice};
use crate::common::process::Deciding;
use crate::gate::GateObject;
use crate::handles::{fw_adaptive, fw_gate};

/// FW_FIFO to FW_ADAPTIVE.
pub type fw_policy_kind = u32;
/// Sends everything in order.
pub const FW_FIFO: fw_policy_kind = 0;
/// In order, without expired records.
pub const FW_EXPIRING: fw_policy_kind = 1;
/// In order, without records that would arrive less than `time` before their deadline.
pub const FW_DEADLINE: fw_policy_kind = 2;
/// For state: the newest value of each key, none past its deadline, in turns.
pub const FW_LATEST: fw_policy_kind = 3;
/// For layered media with deadlines; `time` is the margin.
pub const FW_LAYERED: fw_policy_kind = 4;
/// For video frames with deadlines.
pub const FW_FRAMES: fw_policy_kind = 5;
/// For pictures: the freshest and smoothest screen.
pub const FW_SCREEN: fw_policy_kind = 6;
/// For live pictures with sound.
pub const FW_LIVE: fw_policy_kind = 7;
/// In order; at the end of a window of `time` the rest of it is dropped, the highest layer first.
pub const FW_THESIS: fw_policy_kind = 8;
/// Within a window of `time` the lowest layer first; the rest is dropped at its end.
pub const FW_PRIORITY_PROGRESS: fw_policy_kind = 9;
/// The rules and the order of the policy, which has to have `rules`, or none and an order.
pub const FW_RULES: fw_policy_kind = 10;
/// For live pictures in several renditions: the policy of `adaptive`.
pub const FW_ADAPTIVE: fw_policy_kind = 11;

/// FW_EXPIRED to FW_LAYER_LIMIT.
pub type fw_rule_kind = u32;
/// Its deadline has passed.
pub const FW_EXPIRED: fw_rule_kind = 0;
/// It is next, and would arrive less than `time` before its deadline.
pub const FW_PREDICTED_LATE: fw_rule_kind = 1;
/// A record that it depends on was dropped.
pub const FW_DEPENDENCY_CLOSURE: fw_rule_kind = 2;
/// A newer record with the same key is queued.
pub const FW_LATEST_BY_KEY: fw_rule_kind = 3;
/// Its window, of the length `time`, has ended.
pub const FW_WINDOW_END: fw_rule_kind = 4;
/// A record of a newer group is queued.
pub const FW_NEWEST_GROUP: fw_rule_kind = 5;
/// Its layer is above `layer`.
pub const FW_LAYER_LIMIT: fw_rule_kind = 6;

/// A condition for dropping a queued record.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fw_rule {
    /// Which one.
    pub kind: fw_rule_kind,
    /// Margin or window, where the kind has one.
    pub time: u64,
    /// The highest layer that is sent, for FW_LAYER_LIMIT.
    pub layer: u8,
}

/// FW_BY_AGE, FW_BY_LAYER, FW_BY_NEWEST or FW_BY_TURN: which of the remaining records is sent first.
pub type fw_order = u32;
/// The oldest.
pub const FW_BY_AGE: fw_order = 0;
/// The lowest layer of the oldest group.
pub const FW_BY_LAYER: fw_order = 1;
/// The newest.
pub const FW_BY_NEWEST: fw_order = 2;
/// The key that has waited longest.
pub const FW_BY_TURN: fw_order = 3;

/// A queued record, as a policy's function sees it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fw_record {
    /// The application's number.
    pub seq: u64,
    /// When the data came into being.
    pub generated: u64,
    /// When it loses its value; 0 is never.
    pub deadline: u64,
    /// Records of which a newer one replaces an older one; 0 is no key.
    pub key: u64,
    /// Bytes.
    pub len: u32,
    /// Records that are decodable together.
    pub group: u32,
    /// Distances back in `seq` to the records that it depends on.
    pub refs: [u32; 2],
    /// Rank in a layered stream.
    pub layer: u8,
}

/// The state of the path.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fw_link_view {
    /// Delivery rate in bits per second; 0 while it is not known.
    pub rate: u64,
    /// Smoothed round trip.
    pub rtt: u64,
    /// Smallest round trip.
    pub min_rtt: u64,
    /// Bytes on the wire and not acknowledged.
    pub in_flight: u64,
    /// Bytes committed and not on the wire.
    pub unsent: u64,
}

/// FW_SEND, FW_DROP or FW_WAIT.
pub type fw_verdict = u32;
/// Commit nothing until something changes, or `until` comes. Without a time, the policy behind the function decides.
pub const FW_WAIT: fw_verdict = 0;
/// Commit the record at `at`.
pub const FW_SEND: fw_verdict = 1;
/// Remove the record at `at`, and ask again.
pub const FW_DROP: fw_verdict = 2;

/// What a policy's function decides.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fw_decision {
    /// What to do.
    pub verdict: fw_verdict,
    /// Position in the queue, for FW_SEND and FW_DROP.
    pub at: usize,
    /// Time to ask again, for FW_WAIT; 0 is none.
    pub until: u64,
}

/// A policy's function: decides over `queue`, the oldest record first. A position outside the queue counts as FW_WAIT.
///
/// Over TCP it runs on the engine's thread, every sink of which waits for it. Over A1 it runs on the node's thread, or on any thread in a
/// call for the node, its connections, streams or sinks. One call of it is in progress at a time. It cannot call the library, and must not
/// wait for a lock that a thread holds during such a call.
pub type fw_pick = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        now: u64,
        queue: *const fw_record,
        count: usize,
        link: *const fw_link_view,
    ) -> fw_decision,
>;

/// A policy. A structure of zeros is FW_FIFO.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fw_policy {
    /// Which one.
    pub kind: fw_policy_kind,
    /// Margin or window, where the kind has one.
    pub time: u64,
    /// A function that is asked before, or NULL. It must stay valid until the sink has ended: fw_sink_close or fw_sink_ended has said so,
    /// or fw_engine_free, over A1 fw_node_free, has returned.
    pub pick: fw_pick,
    /// Given to the function, and valid for as long.
    pub context: *mut c_void,
    /// For FW_RULES: conditions for dropping a record, asked in this order; read when the sink is added.
    pub rules: *const fw_rule,
    /// How many.
    pub rule_count: usize,
    /// For FW_RULES: which of the remaining records is sent first.
    pub order: fw_order,
    /// For FW_LATEST, and FW_RULES with FW_BY_TURN: weights of the layers, layer 0 first, read when the sink is added. Higher layers
    /// have the last weight. Where two keys always have data, a key with twice the weight is sent twice as often.
    pub weights: *const u32,
    /// How many.
    pub weight_count: usize,
    /// A gate to put the policy behind, for one sink; zero is none. A call that fails does not use it up.
    pub gate: fw_gate,
    /// For FW_ADAPTIVE: the policy, for one sink. A call that fails does not use it up.
    pub adaptive: fw_adaptive,
}

impl Default for fw_policy {
    fn default() -> Self {
        Self {
            kind: FW_FIFO,
            time: 0,
            pick: None,
            context: std::ptr::null_mut(),
            rules: std::ptr::null(),
            rule_count: 0,
            order: FW_BY_AGE,
            weights: std::ptr::null(),
            weight_count: 0,
            gate: fw_gate::default(),
            adaptive: fw_adaptive::default(),
        }
    }
}

/// A policy for a sink, and the objects in use for that.
pub(crate) struct Made {
    policy: Box<dyn Choice>,
    taken: Taken,
}

/// The objects that serve one sink. They are given back when this is dropped, for another attempt.
#[derive(Default)]
struct Taken {
    adaptive: Option<Arc<AdaptiveObject>>,
    gate: Option<Arc<GateObject>>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(adaptive) = &self.adaptive {
            adaptive.give_back();
        }
        if let Some(gate) = &self.gate {
            gate.give_back();
        }
    }
}

impl Made {
    /// Adds a sink with the policy. If that fails, its gate and its adaptive policy can be used for another one.
    pub(crate) fn serve<T>(mut self, add: impl FnOnce(Box<dyn Choice>) -> Result<T>) -> Result<T> {
        let added = add(self.policy)?;
        (self.taken.adaptive, self.taken.gate) = (None, None);
        Ok(added)
    }
}

impl fw_policy {
    /// # Safety
    ///
    /// `rules` and `weights` are as many as the policy says.
    pub(crate) unsafe fn make(&self) -> Result<Made> {
        let mut taken = Taken::default();
        // SAFETY: as the caller promises.
        let policy = unsafe { self.base(&mut taken) }?;
        let policy: Box<dyn Choice> = match self.pick {
            None => policy,
            Some(pick) => Box::new(asked(pick, Context(self.context)).around(policy)),
        };
        let policy = match self.gate.id {
            0 => policy,
            _ => {
                let object = self.gate.find()?;
                let policy = object.put_before(policy)?;
                taken.gate = Some(object);
                policy
            }
        };
        Ok(Made { policy, taken })
    }

    /// The policy of this kind, without the function and the gate.
    ///
    /// # Safety
    ///
    /// As [`make`](Self::make).
    unsafe fn base(&self, taken: &mut Taken) -> Result<Box<dyn Choice>> {
        // SAFETY: as the caller promises.
        let weights = unsafe { slice(self.weights, self.weight_count) }?.iter().copied();
        let time = Duration::from_nanos(self.time);
        Ok(match self.kind {
            FW_FIFO => Box::new(choice::fifo()),
            FW_EXPIRING => Box::new(choice::expiring()),
            FW_DEADLINE => Box::new(choice::deadline(time)),
            FW_LATEST => Box::new(choice::latest().with_weights(weights)),
            FW_LAYERED => Box::new(choice::layered(time)),
            FW_FRAMES => Box::new(choice::frames()),
            FW_SCREEN => Box::new(choice::screen()),
            FW_LIVE => Box::new(choice::live()),
            FW_THESIS => Box::new(choice::thesis(time)),
            FW_PRIORITY_PROGRESS => Box::new(choice::priority_progress(time)),
            FW_RULES => {
                // SAFETY: as the caller promises.
                let rules = unsafe { slice(self.rules, self.rule_count) }?;
                let builder = choice::Policy::builder().order(order_of(self.order)?).weights(weights);
                let rules: Result<Vec<Rule>> = rules.iter().map(rule_of).collect();
                Box::new(rules?.into_iter().fold(builder, choice::Builder::rule).build())
            }
            FW_ADAPTIVE => {
                let object = self.adaptive.find()?;
                let policy = object.take()?;
                taken.adaptive = Some(object);
                Box::new(policy)
            }
            other => {
                return Err(Failure::invalid(format!(
                    "policy kind {other}: FW_FIFO to FW_ADAPTIVE is wanted"
                )));
            }
        })
    }
}

fn order_of(order: fw_order) -> Result<Order> {
    match order {
        FW_BY_AGE => Ok(Order::Fifo),
        FW_BY_LAYER => Ok(Order::ByLayer),
        FW_BY_NEWEST => Ok(Order::Newest),
        FW_BY_TURN => Ok(Order::ByTurn),
        other => Err(Failure::invalid(format!("order={other}: FW_BY_AGE to FW_BY_TURN is wanted"))),
    }
}

fn rule_of(rule: &fw_rule) -> Result<Rule> {
    let time = Duration::from_nanos(rule.time);
    Ok(match rule.kind {
        FW_EXPIRED => Rule::Expired,
        FW_PREDICTED_LATE => Rule::PredictedLate { margin: time },
        FW_DEPENDENCY_CLOSURE => Rule::DependencyClosure,
        FW_LATEST_BY_KEY => Rule::LatestByKey,
        FW_WINDOW_END => Rule::WindowEnd { window: time },
        FW_NEWEST_GROUP => Rule::NewestGroup,
        FW_LAYER_LIMIT => Rule::LayerLimit { highest: rule.layer },
        other => {
            return Err(Failure::invalid(format!(
                "rule kind {other}: FW_EXPIRED to FW_LAYER_LIMIT is wanted"
            )));
        }
    })
}

/// The caller's pointer, which is only handed back.
struct Context(*mut c_void);

// SAFETY: nothing here looks behind the pointer. The caller knows which threads get it (`fw_pick`).
unsafe impl Send for Context {}

type Pick =
    unsafe extern "C" fn(*mut c_void, u64, *const fw_record, usize, *const fw_link_view) -> fw_decision;

/// The caller's function as a policy.
fn asked(
    pick: Pick,
    context: Context,
) -> FromFn<impl FnMut(Timestamp, &[Record], &LinkView) -> Decision + Send> {
    let mut records = Vec::new();
    choice::from_fn(move |now, queue: &[Record], link: &LinkView| {
        let Context(context) = &context;
        records.clear();
        records.extend(queue.iter().map(record_of));
        let view = fw_link_view {
            rate: link.rate.map_or(0, Rate::bits_per_sec),
            rtt: nanos(link.rtt),
            min_rtt: nanos(link.min_rtt),
            in_flight: link.in_flight,
            unsent: link.unsent,
        };
        let deciding = Deciding::start();
        // SAFETY: the caller keeps the function and its context valid until the sink's end; queue and view are valid during the
        // call.
        let decision =
            unsafe { pick(*context, now.as_nanos(), records.as_ptr(), queue.len(), &raw const view) };
        drop(deciding);
        match decision {
            fw_decision { verdict: FW_SEND, at, .. } if at < queue.len() => Decision::Send(at),
            fw_decision { verdict: FW_DROP, at, .. } if at < queue.len() => {
                Decision::Drop(at, Reason::Application)
            }
            fw_decision { until, .. } => Decision::Wait((until != 0).then(|| Timestamp::from_nanos(until))),
        }
    })
}

fn record_of(record: &Record) -> fw_record {
    fw_record {
        seq: record.seq,
        generated: record.generated.as_nanos(),
        deadline: if record.deadline == Timestamp::MAX { 0 } else { record.deadline.as_nanos() },
        key: record.key,
        len: record.len,
        group: record.group,
        refs: record.refs,
        layer: record.layer,
    }
}
