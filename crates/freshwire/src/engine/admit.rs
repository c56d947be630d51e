//! From a connected stream to a sink that the engine can serve.

use std::io;
use std::sync::Arc;

use freshwire_io::tcp::TcpSocket;
use freshwire_ring::Consumer;

use super::any_sink::AnySink;
use super::carrier::{CarrierChoice, KernelRing, choose, needs_no_engine};
use crate::carrier::{CarrierError, CarrierInUse};
use crate::error::SenderError;
use crate::kernel::direct::Direct;
use crate::kernel::feed::{Feed, Parts as FeedParts};
use crate::kernel::sink::{KernelSink, Source};
use crate::kernel_view::KernelView;
use crate::sink::config::SinkConfig;
use crate::sink::shared::SinkShared;
use crate::tcp::sink::{Limits, Parts, TcpSink};

/// A sink for the engine, and its owner's part.
pub(crate) struct Admission {
    pub(crate) any_sink: AnySink,
    pub(crate) shared: Arc<SinkShared>,
    /// The application's side of the kernel's ring, if no engine is to fill it.
    pub(crate) direct: Option<Direct>,
}

/// Chooses the carrier and makes the sink.
pub(crate) fn admit(
    socket: TcpSocket,
    consumer: Consumer,
    config: SinkConfig,
    may_be_direct: bool,
) -> Result<Admission, SenderError> {
    Ok(match choose(socket, &config, &consumer.region().config(), may_be_direct)? {
        CarrierChoice::Tcp(socket, fallback) => serve_tcp(socket, fallback, consumer, config)?,
        CarrierChoice::Kernel(kernel) if may_be_direct && needs_no_engine(&config) => {
            serve_direct(kernel, consumer, &config)?
        }
        CarrierChoice::Kernel(kernel) => serve_fed(kernel, consumer, config)?,
    })
}

fn serve_tcp(
    socket: TcpSocket,
    fallback: Option<String>,
    consumer: Consumer,
    config: SinkConfig,
) -> io::Result<Admission> {
    let shared = Arc::new(SinkShared::new(CarrierInUse::Tcp, fallback, None));
    let parts = Parts {
        socket,
        consumer,
        choice: config.policy,
        framer: config.framer,
        seal: config.seal,
        preface: config.preface,
        limits: Limits {
            reserve: config.reserve,
            queue_target: config.queue_target,
            max_unread: config.max_unread,
            ack_fates: config.ack_fates,
            departures: config.departures,
        },
        stall_timeout: config.stall_timeout,
        shared: Arc::clone(&shared),
    };
    let any_sink = AnySink::Tcp(Box::new(TcpSink::new(parts)?));
    Ok(Admission { any_sink, shared, direct: None })
}

fn serve_direct(kernel: KernelRing, consumer: Consumer, config: &SinkConfig) -> io::Result<Admission> {
    let KernelRing { socket, producer } = kernel;
    if config.kernel_watch.is_some() {
        socket.set_watch(config.kernel_watch)?;
    }
    let view = KernelView::new(Arc::downgrade(&socket));
    let shared = Arc::new(SinkShared::new(CarrierInUse::KernelRing, None, Some(view)));
    let region = producer.region();
    let source =
        Source::Application { editor: region.editor(), slots: region.config().slots, _claim: consumer };
    let direct = Direct::new(producer, &socket, config.policy.drops_expired());
    let sink = KernelSink::new(socket, source, config.stall_timeout, Arc::clone(&shared));
    Ok(Admission { any_sink: AnySink::Kernel(Box::new(sink)), shared, direct: Some(direct) })
}

fn serve_fed(kernel: KernelRing, consumer: Consumer, config: SinkConfig) -> Result<Admission, SenderError> {
    let KernelRing { socket, producer } = kernel;
    let shared = Arc::new(SinkShared::new(CarrierInUse::KernelFed, None, None));
    let mut feed = Feed::new(FeedParts {
        consumer,
        producer,
        choice: config.policy,
        framer: config.framer,
        reserve: config.reserve,
        queue_target: config.queue_target,
        congestion: socket.tcp().congestion()?,
    });
    if !config.preface.is_empty() && !feed.interject(&config.preface, &socket) {
        return Err(CarrierError::Preface.into());
    }
    let source = Source::Engine(Box::new(feed));
    let sink = KernelSink::new(socket, source, config.stall_timeout, Arc::clone(&shared));
    Ok(Admission { any_sink: AnySink::Kernel(Box::new(sink)), shared, direct: None })
}
