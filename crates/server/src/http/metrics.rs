//! The server's counters, for Prometheus. Everything is read when it is asked for. Viewers are distinguished by
//! their number; only those that are there have values.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::brokers::{BrokerSnapshot, BrokerState, Refusal};
use crate::context::Context;
use crate::hub::{SourceState, StreamSnapshot, ViewerSnapshot};
use crate::log::LOST_LINES;
use crate::targets::{TargetSnapshot, TargetState};
use crate::values::{TopicSnapshot, WatcherSnapshot};

pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All values in the OpenMetrics text format.
pub(super) fn text(context: &Context) -> Result<String, fmt::Error> {
    let streams = context.hub.streams().iter().map(|stream| stream.snapshot()).collect();
    let mut registry = Registry::with_prefix("freshwire");
    let topics = context.topics.all().iter().map(|topic| topic.snapshot()).collect();
    let streams: Vec<StreamSnapshot> = streams;
    let of = |stream: &StreamSnapshot| {
        let targets = context.targets.of(&stream.name).into_iter();
        targets.map(|target| (stream.name.clone(), target)).collect::<Vec<_>>()
    };
    let targets = streams.iter().flat_map(of).collect();
    let (server, brokers) = (server_values(context), context.brokers.all());
    registry.register_collector(Box::new(Reading { streams, topics, targets, brokers, server }));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

/// A value of the whole server.
#[derive(Debug)]
struct ServerValue {
    name: &'static str,
    help: &'static str,
    value: Value,
}

#[derive(Clone, Copy, Debug)]
enum Value {
    Counter(u64),
    Gauge(f64),
}

fn server_values(context: &Context) -> Vec<ServerValue> {
    let counters = &context.counters;
    let admission = &context.admission;
    let counter = |name, help, value| ServerValue { name, help, value: Value::Counter(value) };
    vec![
        ServerValue {
            name: "connections_open",
            help: "Open connections",
            value: Value::Gauge(admission.open() as f64),
        },
        counter("connections_accepted", "Connections accepted", admission.accepted.value()),
        counter("connections_refused", "Connections refused because of a limit", admission.refused.value()),
        counter("tls_handshakes_failed", "TLS handshakes that failed", admission.failed_handshakes.value()),
        counter("rtsp_requests", "RTSP requests answered", counters.rtsp_requests.value()),
        counter("rtmp_commands", "RTMP commands heard", counters.rtmp_commands.value()),
        counter("http_requests", "HTTP requests answered", counters.http_requests.value()),
        counter("requests_bad", "Malformed, oversized or timed-out requests", counters.bad_requests.value()),
        counter("requests_denied", "Requests denied", counters.denied.value()),
        counter("panics", "Tasks that have panicked", context.tasks.panics()),
        counter("log_lines_lost", "Lines of the log that could not be written", LOST_LINES.value()),
        counter("published_bytes", "Bytes received from publishers", counters.published_bytes.value()),
    ]
}

/// One reading of everything.
#[derive(Debug)]
struct Reading {
    streams: Vec<StreamSnapshot>,
    topics: Vec<TopicSnapshot>,
    /// With the names of their streams.
    targets: Vec<(String, TargetSnapshot)>,
    /// The same.
    brokers: Vec<(String, BrokerSnapshot)>,
    server: Vec<ServerValue>,
}

type Labels = Vec<(&'static str, String)>;

impl Collector for Reading {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for ServerValue { name, help, value } in &self.server {
            value.encode(encoder.encode_descriptor(name, help, None, value.metric_type())?)?;
        }
        self.encode_streams(&mut encoder)?;
        self.encode_topics(&mut encoder)?;
        self.encode_viewers(&mut encoder)?;
        self.encode_targets(&mut encoder)?;
        self.encode_brokers(&mut encoder)?;
        self.encode_renditions(&mut encoder)?;
        self.encode_layers(&mut encoder)
    }
}

impl Value {
    fn metric_type(self) -> MetricType {
        match self {
            Self::Counter(_) => MetricType::Counter,
            Self::Gauge(_) => MetricType::Gauge,
        }
    }

    fn encode(self, encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        match self {
            Self::Counter(value) => ConstCounter::new(value).encode(encoder),
            Self::Gauge(value) => ConstGauge::new(value).encode(encoder),
        }
    }
}

/// Name, help, unit and how to read it.
type Metric<T> = (&'static str, &'static str, Option<Unit>, fn(&T) -> Option<Value>);

const STREAM_METRICS: [Metric<StreamSnapshot>; 13] = [
    ("stream_up", "1 while the stream has a publisher", None, |stream| {
        Some(Value::Gauge(f64::from(u8::from(stream.origin.is_some()))))
    }),
    ("stream_source_up", "1 while the relay that the stream is read from has it", None, |stream| {
        let is_up = |state: &SourceState| matches!(state, SourceState::Resting | SourceState::Reading);
        Some(Value::Gauge(f64::from(u8::from(is_up(&stream.source.as_ref()?.state)))))
    }),
    ("stream_units", "Units published", None, |stream| Some(Value::Counter(stream.units))),
    ("stream_keys", "Keyframes published", None, |stream| Some(Value::Counter(stream.keys))),
    ("stream_payload", "Payload bytes published", Some(Unit::Bytes), |stream| {
        Some(Value::Counter(stream.bytes))
    }),
    ("stream_arena", "Payload memory of the stream", Some(Unit::Bytes), |stream| {
        Some(Value::Gauge(stream.arena_bytes as f64))
    }),
    ("stream_arena_used", "Payload memory in use", Some(Unit::Bytes), |stream| {
        Some(Value::Gauge(stream.arena_used as f64))
    }),
    ("stream_ring_faults", "Words of shared memory that another process overwrote", None, |stream| {
        Some(Value::Counter(stream.ring_faults))
    }),
    ("stream_encoder_failures", "Encoders of the ladder that ended and were started again", None, |stream| {
        Some(Value::Counter(stream.encoder_failures))
    }),
    ("stream_encoder_hangs", "Encoders of the ladder that were ended because they hung", None, |stream| {
        Some(Value::Counter(stream.encoder_hangs))
    }),
    (
        "stream_viewers_given_up",
        "Viewers disconnected because their rings yielded no records",
        None,
        |stream| Some(Value::Counter(stream.given_up)),
    ),
    ("stream_viewers", "Viewers at present", None, |stream| Some(Value::Gauge(stream.viewers.len() as f64))),
    ("stream_viewers_limited", "Viewers whose path was the limit recently", None, |stream| {
        Some(Value::Gauge(stream.viewers.iter().filter(|viewer| is_limited(viewer)).count() as f64))
    }),
];

const TOPIC_METRICS: [Metric<TopicSnapshot>; 7] = [
    ("values_keys", "Keys that have a value", None, |topic| Some(Value::Gauge(topic.keys as f64))),
    ("values_changes", "Values set and keys deleted", None, |topic| Some(Value::Counter(topic.changes))),
    ("values_newest", "Memory of the newest values", Some(Unit::Bytes), |topic| {
        Some(Value::Gauge(topic.bytes as f64))
    }),
    ("values_arena_used", "Memory of queued values", Some(Unit::Bytes), |topic| {
        Some(Value::Gauge(topic.arena_used as f64))
    }),
    ("values_waiting_deletions", "Deleted keys for whose deletion a watcher waits", None, |topic| {
        Some(Value::Gauge(topic.waiting_deletions as f64))
    }),
    ("values_publishers", "Publishers over WebSocket", None, |topic| {
        Some(Value::Gauge(topic.publishers as f64))
    }),
    ("values_watchers", "Watchers at present", None, |topic| Some(Value::Gauge(topic.watchers.len() as f64))),
];

const WATCHER_METRICS: [Metric<WatcherSnapshot>; 8] = [
    ("watcher_sent", "Values committed", None, |watcher| {
        Some(Value::Counter(watcher.sink.committed_by_layer.iter().sum()))
    }),
    ("watcher_dropped", "Values dropped for newer ones, or as too old", None, |watcher| {
        Some(Value::Counter(watcher.dropped))
    }),
    ("watcher_waiting_keys", "Keys whose newest value found no room yet", None, |watcher| {
        Some(Value::Gauge(watcher.waiting_keys as f64))
    }),
    ("watcher_unread", "Bytes that its program has not read, where known", Some(Unit::Bytes), |watcher| {
        Some(Value::Gauge(watcher.sink.unread? as f64))
    }),
    (
        "watcher_held_unread",
        "Time held back for what its program has not read",
        Some(Unit::Seconds),
        |watcher| Some(Value::Gauge(watcher.sink.held_unread.as_secs_f64())),
    ),
    ("watcher_times_held_unread", "How often it was held back for that", None, |watcher| {
        Some(Value::Counter(watcher.sink.times_held_unread))
    }),
    (
        "watcher_age_at_commit_max",
        "Largest age of a value at its commit point",
        Some(Unit::Seconds),
        |watcher| Some(Value::Gauge(watcher.sink.age_at_commit_max.as_secs_f64())),
    ),
    ("watcher_rtt", "Smoothed round trip", Some(Unit::Seconds), |watcher| {
        Some(Value::Gauge(watcher.sink.rtt.as_secs_f64()))
    }),
];

const VIEWER_METRICS: [Metric<ViewerSnapshot>; 18] = [
    ("viewer_age_at_commit_mean", "Mean age of a unit at its commit point", Some(Unit::Seconds), |viewer| {
        Some(Value::Gauge(viewer.sink.age_at_commit_mean.as_secs_f64()))
    }),
    (
        "viewer_age_at_commit_max",
        "Largest age of a unit at its commit point",
        Some(Unit::Seconds),
        |viewer| Some(Value::Gauge(viewer.sink.age_at_commit_max.as_secs_f64())),
    ),
    ("viewer_horizon", "Bytes committed and not on the wire", Some(Unit::Bytes), |viewer| {
        Some(Value::Gauge(viewer.sink.horizon as f64))
    }),
    ("viewer_horizon_max", "The largest horizon so far", Some(Unit::Bytes), |viewer| {
        Some(Value::Gauge(viewer.sink.horizon_max as f64))
    }),
    ("viewer_sent", "Bytes handed to the carrier", Some(Unit::Bytes), |viewer| {
        Some(Value::Counter(viewer.sink.bytes))
    }),
    (
        "viewer_by_reference",
        "Bytes handed to the carrier by reference, without a copy",
        Some(Unit::Bytes),
        |viewer| Some(Value::Counter(viewer.sink.bytes_by_reference)),
    ),
    ("viewer_acked", "Bytes acknowledged", Some(Unit::Bytes), |viewer| {
        Some(Value::Counter(viewer.sink.acked))
    }),
    ("viewer_rate_bytes_per_second", "Estimated rate of the path", None, |viewer| {
        viewer.sink.rate.map(|rate| Value::Gauge(rate.bits_per_sec() as f64 / 8.0))
    }),
    ("viewer_limited", "1 while the path is the limit", None, |viewer| {
        Some(Value::Gauge(f64::from(u8::from(is_limited(viewer)))))
    }),
    ("viewer_latency", "Latency bound that the viewer requested", Some(Unit::Seconds), |viewer| {
        viewer.latency.map(|latency| Value::Gauge(latency.as_secs_f64()))
    }),
    ("viewer_rtt", "Smoothed round trip", Some(Unit::Seconds), |viewer| {
        Some(Value::Gauge(viewer.sink.rtt.as_secs_f64()))
    }),
    ("viewer_missed", "Units that could not be queued", None, |viewer| Some(Value::Counter(viewer.missed))),
    ("viewer_ring_faults", "Bad values in shared memory that were skipped", None, |viewer| {
        Some(Value::Counter(viewer.sink.invalid))
    }),
    ("viewer_repeated", "Dropped pictures replaced by a repetition of the previous one", None, |viewer| {
        Some(Value::Counter(viewer.sink.replaced))
    }),
    ("viewer_repaired_packets", "Packets sent again over UDP on the player's request", None, |viewer| {
        Some(Value::Counter(viewer.sink.repaired))
    }),
    ("viewer_late_repairs", "Requests for lost packets refused as too late to be of use", None, |viewer| {
        Some(Value::Counter(viewer.sink.late_repairs))
    }),
    ("viewer_writes", "Write calls", None, |viewer| Some(Value::Counter(viewer.sink.writes))),
    ("viewer_connected", "Time since the viewer connected", Some(Unit::Seconds), |viewer| {
        Some(Value::Gauge(viewer.age.as_secs_f64()))
    }),
];

const TARGET_METRICS: [Metric<TargetSnapshot>; 5] = [
    ("target_up", "1 while the target gets the stream", None, |target| {
        let is_up = matches!(target.state, TargetState::Publishing { .. });
        Some(Value::Gauge(f64::from(u8::from(is_up))))
    }),
    (
        "target_connected",
        "1 while the target knows the stream, whether or not it asks for it",
        None,
        |target| {
            let is_known = matches!(target.state, TargetState::Publishing { .. } | TargetState::Announced);
            Some(Value::Gauge(f64::from(u8::from(is_known))))
        },
    ),
    (
        "target_behind",
        "By how much the target's newest unit is older than the newest one of the source",
        Some(Unit::Seconds),
        |target| target.behind.map(|behind| Value::Gauge(behind.as_secs_f64())),
    ),
    ("target_connections", "Connections on which the target took the stream", None, |target| {
        Some(Value::Counter(target.connections))
    }),
    ("target_failures", "Connections to the target that failed or broke", None, |target| {
        Some(Value::Counter(target.failures))
    }),
];

const BROKER_METRICS: [Metric<BrokerSnapshot>; 7] = [
    ("broker_up", "1 while the broker has the subscription", None, |broker| {
        let is_up = matches!(broker.state, BrokerState::Subscribed { .. });
        Some(Value::Gauge(f64::from(u8::from(is_up))))
    }),
    ("broker_connections", "Connections on which the broker took the subscription", None, |broker| {
        Some(Value::Counter(broker.connections))
    }),
    ("broker_failures", "Connections to the broker that failed or broke", None, |broker| {
        Some(Value::Counter(broker.failures))
    }),
    ("broker_received", "Messages received", None, |broker| Some(Value::Counter(broker.received))),
    (
        "broker_superseded",
        "Messages that a newer one of their key replaced before readers were offered them",
        None,
        |broker| Some(Value::Counter(broker.superseded)),
    ),
    ("broker_waiting_keys", "Keys whose newest message waits to be offered to readers", None, |broker| {
        Some(Value::Gauge(broker.waiting as f64))
    }),
    ("broker_published", "Values that clients sent to the broker", None, |broker| {
        Some(Value::Counter(broker.published))
    }),
];

fn is_limited(viewer: &ViewerSnapshot) -> bool {
    viewer.sink.path.is_some_and(|path| !path.at_least)
}

impl Reading {
    fn encode_streams(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, unit, read) in &STREAM_METRICS {
            let values = self.streams.iter().map(|stream| (stream_labels(stream), read(stream)));
            encode_family(encoder, (name, help, unit.as_ref()), values)?;
        }
        let fits = self.streams.iter().flat_map(|stream| {
            let fit = stream
                .fit()
                .map(|fit| [("slowest", fit.slowest), ("median", fit.median), ("fastest", fit.fastest)]);
            fit.into_iter().flatten().map(|(whose, path)| {
                let rate = path.rate.bits_per_sec() as f64 / 8.0;
                (with(&stream_labels(stream), "path", &whose), Some(Value::Gauge(rate)))
            })
        });
        let help = "Rate of a viewer's path; a lower bound if stream_viewers_limited does not count it";
        encode_family(encoder, ("stream_fit_bytes_per_second", help, None), fits)
    }

    fn encode_topics(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let labels = |topic: &TopicSnapshot| vec![("stream", topic.name.clone())];
        for (name, help, unit, read) in &TOPIC_METRICS {
            let values = self.topics.iter().map(|topic| (labels(topic), read(topic)));
            encode_family(encoder, (name, help, unit.as_ref()), values)?;
        }
        for (name, help, unit, read) in &WATCHER_METRICS {
            let values = self.topics.iter().flat_map(|topic| {
                topic.watchers.iter().map(move |watcher| {
                    let labels = with(&labels(topic), "protocol", &watcher.protocol);
                    (with(&labels, "watcher", &watcher.id), read(watcher))
                })
            });
            encode_family(encoder, (name, help, unit.as_ref()), values)?;
        }
        Ok(())
    }

    fn encode_viewers(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, unit, read) in &VIEWER_METRICS {
            let values = self.viewers().map(|(labels, viewer)| (labels, read(viewer)));
            encode_family(encoder, (name, help, unit.as_ref()), values)?;
        }
        let drops =
            self.viewers().flat_map(|(labels, viewer)| {
                viewer.sink.drops.iter().map(move |(reason, count)| {
                    (with(&labels, "reason", reason), Some(Value::Counter(*count)))
                })
            });
        encode_family(encoder, ("viewer_drops", "Units dropped", None), drops)
    }

    fn encode_targets(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, unit, read) in &TARGET_METRICS {
            let values = self.targets.iter().map(|(stream, target)| {
                let labels = vec![("stream", stream.clone()), ("target", target.address.clone())];
                (labels, read(target))
            });
            encode_family(encoder, (name, help, unit.as_ref()), values)?;
        }
        Ok(())
    }

    fn encode_brokers(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let labels = |stream: &String| vec![("stream", stream.clone())];
        for (name, help, unit, read) in &BROKER_METRICS {
            let values = self.brokers.iter().map(|(stream, broker)| (labels(stream), read(broker)));
            encode_family(encoder, (name, help, unit.as_ref()), values)?;
        }
        let refused = self.brokers.iter().flat_map(|(stream, broker)| {
            Refusal::ALL.into_iter().map(move |refusal| {
                let count = broker.refused.get(&refusal).copied().unwrap_or_default();
                (with(&labels(stream), "reason", &refusal.name()), Some(Value::Counter(count)))
            })
        });
        encode_family(encoder, ("broker_refused", "Messages that did not become values", None), refused)
    }

    fn encode_renditions(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let renditions = || {
            self.streams.iter().flat_map(|stream| {
                let labels = stream_labels(stream);
                stream.renditions.iter().map(move |it| (with(&labels, "rendition", &it.name), it))
            })
        };
        let up =
            renditions().map(|(labels, it)| (labels, Some(Value::Gauge(f64::from(u8::from(it.is_present))))));
        encode_family(encoder, ("rendition_up", "1 while the rendition is available", None), up)?;
        let rates = renditions()
            .map(|(labels, it)| (labels, it.cost.map(|cost| Value::Gauge(cost.bytes_per_sec as f64))));
        encode_family(
            encoder,
            ("rendition_bytes_per_second", "Rate that the rendition requires", None),
            rates,
        )?;
        let viewers = self.viewers().filter_map(|(labels, viewer)| {
            let labels = with(&labels, "rendition", viewer.rendition.as_ref()?);
            Some((with(&labels, "why", &viewer.why), Some(Value::Gauge(1.0))))
        });
        encode_family(encoder, ("viewer_rendition", "1 for the rendition that a viewer has", None), viewers)?;
        let changes =
            self.viewers().map(|(labels, viewer)| (labels, Some(Value::Counter(u64::from(viewer.changes)))));
        encode_family(encoder, ("viewer_rendition_changes", "Changes of the rendition", None), changes)
    }

    fn encode_layers(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        type Counts = fn(&ViewerSnapshot) -> &[u64; 8];
        let metrics: [(&str, &str, Counts); 3] = [
            ("viewer_layer_offered", "Video units offered", |viewer| &viewer.offered),
            ("viewer_layer_sent", "Units committed; sound is in layer 0", |viewer| {
                &viewer.sink.committed_by_layer
            }),
            ("viewer_layer_dropped", "Units dropped", |viewer| &viewer.sink.dropped_by_layer),
        ];
        for (name, help, counts) in metrics {
            let values = self.viewers().flat_map(|(labels, viewer)| {
                let counts = counts(viewer).iter().zip(viewer.offered).enumerate();
                counts.filter(|(_, (_, offered))| *offered > 0).map(move |(layer, (count, _))| {
                    (with(&labels, "layer", &layer), Some(Value::Counter(*count)))
                })
            });
            encode_family(encoder, (name, help, None), values)?;
        }
        Ok(())
    }

    fn viewers(&self) -> impl Iterator<Item = (Labels, &ViewerSnapshot)> {
        self.streams.iter().flat_map(|stream| {
            stream.viewers.iter().map(|viewer| {
                let labels = with(&stream_labels(stream), "protocol", &viewer.protocol);
                (with(&labels, "viewer", &viewer.id), viewer)
            })
        })
    }
}

fn stream_labels(stream: &StreamSnapshot) -> Labels {
    vec![("stream", stream.name.clone())]
}

fn with(labels: &Labels, name: &'static str, value: &impl ToString) -> Labels {
    let mut labels = labels.clone();
    labels.push((name, value.to_string()));
    labels
}

/// Writes a metric with all its values; without any it is left out.
fn encode_family(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, unit): (&str, &str, Option<&Unit>),
    values: impl Iterator<Item = (Labels, Option<Value>)>,
) -> Result<(), fmt::Error> {
    let mut values = values.filter_map(|(labels, value)| Some((labels, value?))).peekable();
    let Some((_, first)) = values.peek() else { return Ok(()) };
    let mut family = encoder.encode_descriptor(name, help, unit, first.metric_type())?;
    for (labels, value) in values {
        value.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
