//! The hosts of the mixed load, and one run on them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use freshwire_acks::{Config, Filter, Hook, HookChoice, Rule};
use freshwire_netns::testbed::{Receiver, TcpCounters, Testbed, connect, pin, runtime};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::process::setpriority_process;
use rustix::thread::gettid;

use super::camera::{self, CameraAccount, HandOver, Viewer};
use super::profile::{Recording, Shares};
use super::receivers::{self, Arrivals, Receivers};
use super::share::Share;
use super::sound;
use crate::bench::machine::{ThreadTimes, threads_of};
use crate::bench::served::{self, Served};

/// Viewers of sound.
pub(super) const SOUNDS: usize = 2;

/// Payload of a full segment over Ethernet, with timestamps; datagrams of video stay below what a link takes.
const FULL_SEGMENT: f64 = 1448.0;
pub(super) const DATAGRAM: usize = 1400;

/// Packets that wait for the device, as in a small card's ring.
const RING_PACKETS: u32 = 1000;

/// The receiver takes its processor before others do: it is not what is measured.
const RECEIVER_NICE: i32 = -20;

/// Bytes of datagrams that may wait at a viewer.
const DATAGRAM_BUFFER: usize = 8 << 20;

/// The congestion control of the camera's kernel, too.
const CONGESTION: &str = "cubic";

/// Viewers, and the changes of Marigi 2012 that are in effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) tcp: usize,
    pub(super) udp: usize,
    pub(super) hand_over: HandOver,
    pub(super) filter: bool,
    /// Datagrams by segmentation offload.
    pub(super) batches: bool,
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunOutcome {
    pub(super) done: CameraAccount,
    pub(super) arrived: Arrivals,
    /// The camera's time, from its first picture to its last.
    pub(super) time: Duration,
    pub(super) camera: Duration,
    pub(super) arrivals: Duration,
    pub(super) encoders: Duration,
    /// For how long the quota held the camera and the encoders back.
    pub(super) held_back: Duration,
    pub(super) sound_sent: u64,
    pub(super) tcp: TcpCounters,
    pub(super) shares: Option<Shares>,
}

impl RunOutcome {
    /// The part of the processor time that pictures take, of all that the group had.
    pub(super) fn load(&self) -> f64 {
        let pictures = (self.camera + self.arrivals).as_secs_f64();
        pictures / (pictures + self.encoders.as_secs_f64()).max(1e-9)
    }

    /// Payload of the mean segment, of a full one.
    pub(super) fn fullness(&self) -> f64 {
        self.done.tcp_bytes as f64 / (self.tcp.segments_out as f64 * FULL_SEGMENT).max(1.0)
    }
}

/// The hosts, and the share of the processor that the near one has.
pub(super) struct Stage {
    // First: the kernel's thread leaves the group before its interface goes.
    share: Share,
    testbed: Testbed,
    arrivals: i32,
}

impl Stage {
    pub(super) fn new() -> anyhow::Result<Self> {
        let mut share = Share::new()?;
        // The receiver of Marigi 2012 acknowledges each second packet.
        let testbed = Testbed::new("mixed", Receiver::Delayed).context("cannot measure the mixed load")?;
        testbed.set_queue(RING_PACKETS)?;
        let arrivals = testbed.arrivals().context("the near interface has no thread for arrivals")?;
        share.add_kernel_thread(arrivals)?;
        Ok(Self { share, testbed, arrivals })
    }

    /// Limits the near host to a share of processor 0, or not.
    pub(super) fn limit(&self, share: Option<f64>) -> anyhow::Result<()> {
        self.share.limit(share)
    }

    /// Runs a setting once; `interval` is that between blocks of sound.
    pub(super) fn run(
        &self,
        setting: Setting,
        plan: &camera::Plan<'_>,
        interval: Duration,
        profile: bool,
    ) -> anyhow::Result<RunOutcome> {
        let (mut viewers, receivers, sounds) = self.connect(setting)?;
        let filter = self.filter(setting)?;
        let before = self.testbed.counters()?;
        let (encoders_stop, receivers_stop) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut ran = thread::scope(|scope| {
            let (sender, encoder_threads) = mpsc::channel();
            let far = scope.spawn(|| {
                pin(1);
                setpriority_process(Some(gettid()), RECEIVER_NICE)?;
                receivers::run(&receivers, plan.picture.len(), plan.datagram, &receivers_stop)
            });
            let encoders: Vec<_> = (0_u8..)
                .zip(&sounds)
                .map(|(number, socket)| {
                    let (sender, stop) = (sender.clone(), &encoders_stop);
                    scope.spawn(move || self.encode(socket, number, interval, sender, stop))
                })
                .collect();
            drop(sender);
            let (named, camera_thread) = mpsc::channel();
            let (encoders_stop, arrivals) = (&encoders_stop, self.arrivals);
            let camera = scope.spawn(move || {
                let ran = self.film(&mut viewers, plan, &encoder_threads, &named);
                encoders_stop.store(true, Ordering::Relaxed);
                // Data in the sockets is still sent, then the connections end.
                drop(viewers);
                ran
            });
            // From here: what the camera's thread starts is on its share.
            let recording = match camera_thread.recv() {
                Ok(thread) if profile => Recording::start(&[thread, arrivals], plan.time),
                _ => Ok(None),
            };
            let ran = camera.join().unwrap_or_else(|_| Err(anyhow!("the camera's thread panicked")));
            let shares = recording.and_then(|recording| recording.map(Recording::finish).transpose());
            let sound_sent = encoders
                .into_iter()
                .map(|encoder| encoder.join().unwrap_or_else(|_| Err(anyhow!("an encoder panicked"))));
            let sound_sent: Vec<_> = sound_sent.collect();
            // Before any error is returned: the receivers run until then.
            receivers_stop.store(true, Ordering::Release);
            let sound_sent = sound_sent.into_iter().sum::<anyhow::Result<_>>()?;
            let arrived = far.join().unwrap_or_else(|_| Err(io::Error::other("the receiver panicked")))?;
            Ok::<_, anyhow::Error>(RunOutcome { arrived, sound_sent, shares: shares?, ..ran? })
        })?;
        drop(filter);
        ran.tcp = self.testbed.counters()? - before;
        Ok(ran)
    }

    /// The same with `freshwire serve` in the camera's place: a process on the share, to which `plan` is handed over as MPEG-TS.
    pub(super) fn serve(
        &self,
        setting: Setting,
        plan: &camera::Plan<'_>,
        interval: Duration,
        profile: bool,
    ) -> anyhow::Result<RunOutcome> {
        let filter = self.filter(setting)?;
        let Setting { tcp, udp, .. } = setting;
        let picture = Duration::from_secs_f64(1.0 / plan.rate);
        let stream = served::Plan { bytes: plan.picture.len(), interval: picture, tcp, udp };
        let mut served = Served::start(&self.testbed, stream, || self.share.join())?;
        let (_far, sounds) = self.sounds()?;
        let stop = AtomicBool::new(false);
        let mut ran = thread::scope(|scope| {
            let (sender, encoder_threads) = mpsc::channel();
            let encoders: Vec<_> = (0_u8..)
                .zip(&sounds)
                .map(|(number, socket)| {
                    let (sender, stop) = (sender.clone(), &stop);
                    scope.spawn(move || self.encode(socket, number, interval, sender, stop))
                })
                .collect();
            drop(sender);
            let encoder_threads: Vec<i32> = encoder_threads.iter().collect();
            let ran = self.watch(&mut served, &encoder_threads, plan.time, profile);
            stop.store(true, Ordering::Relaxed);
            let sent = encoders
                .into_iter()
                .map(|encoder| encoder.join().unwrap_or_else(|_| Err(anyhow!("an encoder panicked"))));
            let sound_sent = sent.sum::<anyhow::Result<u64>>()?;
            Ok::<_, anyhow::Error>(RunOutcome { sound_sent, ..ran? })
        })?;
        drop(filter);
        let [made, left_out] = served.finish()?;
        ran.done.skipped = left_out;
        ensure!(made > 0, "the server read no picture");
        Ok(ran)
    }

    /// Looks at the server and the encoders before and after `time`.
    fn watch(
        &self,
        served: &mut Served,
        encoders: &[i32],
        time: Duration,
        profile: bool,
    ) -> anyhow::Result<RunOutcome> {
        let look = |served: &mut Served| -> anyhow::Result<_> {
            let of_encoders = encoders.iter().map(|&thread| runtime(Some(thread))).sum::<Duration>();
            let times = (ThreadTimes::of(served.id())?, runtime(Some(self.arrivals)), of_encoders);
            Ok((times, served.viewers.got()?, self.share.held_back()?, self.testbed.counters()?))
        };
        let threads: Vec<i32> = threads_of(served.id())?.into_iter().chain([self.arrivals]).collect();
        let recording = if profile { Recording::start(&threads, time)? } else { None };
        let before = look(served)?;
        thread::sleep(time);
        let after = look(served)?;
        let [tcp, udp] = [0, 1].map(|kind| after.1[kind].since(before.1[kind]));
        let (bytes, pictures) = (tcp.bytes, tcp.pictures);
        Ok(RunOutcome {
            done: CameraAccount {
                tcp_bytes: bytes,
                tcp_pictures: pictures,
                udp_bytes: udp.bytes,
                udp_pictures: udp.pictures,
                ..CameraAccount::default()
            },
            arrived: Arrivals {
                tcp_bytes: bytes,
                udp_bytes: udp.bytes,
                udp_pictures: udp.pictures,
                sound_blocks: 0,
            },
            time,
            camera: after.0.0.since(&before.0.0),
            arrivals: after.0.1.saturating_sub(before.0.1),
            encoders: after.0.2.saturating_sub(before.0.2),
            held_back: after.2.saturating_sub(before.2),
            sound_sent: 0,
            tcp: after.3 - before.3,
            shares: recording.map(Recording::finish).transpose()?,
        })
    }

    /// The ACK filter, if the setting has it.
    fn filter(&self, setting: Setting) -> anyhow::Result<Option<Filter>> {
        let make = || {
            let choice = HookChoice::Only(Hook::Tc);
            self.testbed.in_near(|| Filter::new(self.testbed.interface(), choice, &Config::new(Rule::Safe)))
        };
        Ok(setting.filter.then(make).transpose()?.transpose()?)
    }

    /// The camera's thread, on the share.
    fn film(
        &self,
        viewers: &mut [Viewer],
        plan: &camera::Plan<'_>,
        encoders: &mpsc::Receiver<i32>,
        name: &mpsc::Sender<i32>,
    ) -> anyhow::Result<RunOutcome> {
        pin(0);
        self.share.join()?;
        let own = gettid().as_raw_nonzero().get();
        let encoders: Vec<i32> = encoders.iter().collect();
        // Nobody listens once the run has failed.
        let _ = name.send(own);
        let look = || {
            let of_encoders = encoders.iter().map(|&thread| runtime(Some(thread))).sum::<Duration>();
            (runtime(Some(own)), runtime(Some(self.arrivals)), of_encoders)
        };
        let (before, held_before) = (look(), self.share.held_back()?);
        let done = camera::run(viewers, plan)?;
        let (after, held_after) = (look(), self.share.held_back()?);
        Ok(RunOutcome {
            done,
            arrived: Arrivals::default(),
            time: plan.time,
            camera: after.0.saturating_sub(before.0),
            arrivals: after.1.saturating_sub(before.1),
            encoders: after.2.saturating_sub(before.2),
            held_back: held_after.saturating_sub(held_before),
            sound_sent: 0,
            tcp: TcpCounters::default(),
            shares: None,
        })
    }

    /// An encoder's thread, on the share. It says its number, and returns how many blocks it sent.
    fn encode(
        &self,
        socket: &UdpSocket,
        number: u8,
        interval: Duration,
        name: mpsc::Sender<i32>,
        stop: &AtomicBool,
    ) -> anyhow::Result<u64> {
        pin(0);
        self.share.join()?;
        setpriority_process(Some(gettid()), sound::NICE)?;
        // Nobody listens if the camera has failed.
        let _ = name.send(gettid().as_raw_nonzero().get());
        drop(name);
        let (_, sent) = sound::run(socket, 0.3 + 0.1 * f32::from(number), interval, stop)?;
        Ok(sent)
    }

    /// Both ends for sound: the viewers' socket, and the encoders'.
    fn sounds(&self) -> anyhow::Result<(UdpSocket, Vec<UdpSocket>)> {
        let any = SocketAddr::new(self.testbed.address().ip(), 0);
        let far = self.testbed.in_far(|| UdpSocket::bind(any))??;
        let to = far.local_addr()?;
        let connected = |_| -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.connect(to)?;
            Ok(socket)
        };
        let near = self.testbed.in_near(|| (0..SOUNDS).map(connected).collect::<io::Result<Vec<_>>>())??;
        Ok((far, near))
    }

    /// Both ends of all connections.
    fn connect(&self, setting: Setting) -> anyhow::Result<(Vec<Viewer>, Receivers, Vec<UdpSocket>)> {
        let Setting { tcp, udp, batches, .. } = setting;
        let host = self.testbed.address().ip();
        let any = SocketAddr::new(host, 0);
        let (listener, datagrams) = self.testbed.in_far(|| {
            let bind = || -> io::Result<UdpSocket> {
                let socket = UdpSocket::bind(any)?;
                set_socket_recv_buffer_size_force(&socket, DATAGRAM_BUFFER)?;
                Ok(socket)
            };
            let datagrams = (0..udp).map(|_| bind()).collect::<io::Result<Vec<_>>>()?;
            io::Result::Ok((TcpListener::bind(any)?, datagrams))
        })??;
        let to = listener.local_addr()?;
        let (sound, sounds) = self.sounds()?;
        let viewers = self.testbed.in_near(|| {
            let near = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
            let mut viewers = Vec::new();
            // TCP and UDP take turns, so that neither is always served first.
            for place in 0..tcp.max(udp) {
                if place < tcp {
                    viewers.push(Viewer::Tcp(connect(to, CONGESTION)?));
                }
                let Some(socket) = datagrams.get(place) else { continue };
                let (address, socket) = (socket.local_addr()?, near()?);
                viewers.push(if batches {
                    Viewer::UdpBatches(freshwire_io::udp::UdpSocket::from_std(socket)?, address)
                } else {
                    socket.connect(address)?;
                    socket.set_nonblocking(true)?;
                    Viewer::Udp(socket)
                });
            }
            io::Result::Ok(viewers)
        })??;
        let streams = (0..tcp).map(|_| Ok(listener.accept()?.0)).collect::<io::Result<Vec<_>>>()?;
        Ok((viewers, Receivers { tcp: streams, udp: datagrams, sound }, sounds))
    }
}
