//! A camera's stream, from its description to its end.

use std::time::{Duration, Instant};

use freshwire_media::depacketize::rtcp;
use freshwire_media::sdp::{self, Media};
use rtsp_types::Method;
use tokio::time::MissedTickBehavior;

use super::client::Client;
use super::error::{PATIENCE, PullError};
use super::transport::{AgreedTransport, addresses, clean};
use crate::config::Camera;
use crate::hub::Publisher;
use crate::ingest::Outlet;
use crate::rtsp::channel::Channel;
use crate::rtsp::common::random;
use crate::rtsp::feed::{Feed, TrackSelection};
use crate::rtsp::link::LinkError;
use crate::rtsp::message::{Message, Request, Response};
use crate::rtsp::receive::Receiver;
use crate::rtsp::udp::Ports;

/// A camera that sends its viewers elsewhere more often than this does not know where its stream is.
const MOST_REDIRECTS: u32 = 5;

/// A session that says no timeout has this one (RFC 2326, 12.37).
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);

/// The shortest and the longest time between two requests that keep a session.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));

/// How often a camera hears by RTCP that somebody is there.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// How often to see whether packets come.
const LOOK: Duration = Duration::from_secs(1);

/// A session description that was found.
struct DescribedCamera {
    client: Client,
    /// The address that controls are relative to.
    base: String,
    description: sdp::Description,
    /// The request that keeps the session: GET_PARAMETER where the camera knows it.
    keeps_by: &'static str,
}

/// A camera that sends.
struct CameraSession {
    client: Client,
    /// The URL of the whole session.
    aggregate: String,
    channels: Vec<(u8, Channel)>,
    datagrams: Receiver,
    feed: Feed,
    keeps_by: &'static str,
    keep_alive: Duration,
    ssrc: u32,
    /// When the last packet of a track came.
    heard: Instant,
    /// Unreadable packets have been reported.
    reported_damage: bool,
}

/// Plays the camera's stream until it ends, which is an error.
pub(super) async fn play(camera: &Camera, outlet: &Outlet) -> Result<(), PullError> {
    let found = describe(camera).await?;
    let (mut playing, mut publisher) = begin(found, outlet).await?;
    tracing::info!(stream = outlet.name(), camera = camera.origin(), "the camera sends");
    for (channel, bytes) in std::mem::take(&mut playing.client.early) {
        playing.packet(channel, &bytes, &mut publisher);
    }
    playing.run(&mut publisher).await
}

/// Asks for the description, where the camera sends us.
async fn describe(camera: &Camera) -> Result<DescribedCamera, PullError> {
    let mut camera = camera.clone();
    for _ in 0..=MOST_REDIRECTS {
        let mut client = Client::connect(camera.clone()).await?;
        let url = camera.url.clone();
        // Whatever is answered: some cameras do not know the method.
        let options = client.ask("OPTIONS", &url, &[]).await?;
        let public = options.headers("public").collect::<Vec<_>>().join(",");
        let knows = public.split(',').any(|method| method.trim().eq_ignore_ascii_case(GET_PARAMETER));
        let keeps_by = if knows { GET_PARAMETER } else { OPTIONS };
        let response = client.ask("DESCRIBE", &url, &[("Accept", "application/sdp")]).await?;
        if (300..400).contains(&response.status) {
            let location = response.header("location").ok_or_else(|| refused("DESCRIBE", &response))?;
            camera = camera.redirected(location)?;
            continue;
        }
        if response.status != 200 {
            return Err(refused("DESCRIBE", &response));
        }
        let base = ["content-base", "content-location"].iter().find_map(|name| response.header(name));
        let base = base.map(clean).filter(|base| base.contains("://")).unwrap_or(url);
        let description = sdp::parse_whole(&response.body)?;
        return Ok(DescribedCamera { client, base, description, keeps_by });
    }
    Err(PullError::Redirects)
}

/// Sets the tracks up and begins to play.
async fn begin(found: DescribedCamera, outlet: &Outlet) -> Result<(CameraSession, Publisher), PullError> {
    let DescribedCamera { client, base, description, keeps_by } = found;
    let mut choice = TrackSelection::new(&description.media)?;
    let mut setup = Setup {
        client,
        channels: Vec::new(),
        datagrams: Receiver::new(),
        over_udp: None,
        keep_alive: SESSION_TIMEOUT / 2,
    };
    let mut first_error = None;
    for (index, media) in description.media.iter().enumerate() {
        if !choice.takes(index) {
            continue;
        }
        match setup.track(index, media, &base).await {
            Ok(()) => {}
            // One track is better than none.
            Err(error @ PullError::Refused { .. }) => {
                tracing::warn!(stream = outlet.name(), track = index, %error, "a track is left out");
                choice.leave_out(index);
                first_error.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    let Setup { mut client, channels, datagrams, over_udp, keep_alive } = setup;
    if over_udp.is_none() {
        return Err(first_error.unwrap_or(PullError::Ended));
    }
    let own = description.control.as_deref().map(clean).filter(|control| control.contains("://"));
    let aggregate = own.unwrap_or_else(|| base.clone());
    let publisher = outlet.publish(&client.camera.origin(), None)?;
    let response = client.ask("PLAY", &aggregate, &[("Range", "npt=0.000-")]).await?;
    if !is_success(&response) {
        return Err(refused("PLAY", &response));
    }
    let playing = CameraSession {
        client,
        aggregate,
        channels,
        datagrams,
        feed: Feed::new(choice),
        keeps_by,
        keep_alive,
        ssrc: u32::from_be_bytes(random()?),
        heard: Instant::now(),
        reported_damage: false,
    };
    Ok((playing, publisher))
}

/// The agreement of SETUP.
struct Setup {
    client: Client,
    channels: Vec<(u8, Channel)>,
    datagrams: Receiver,
    /// All tracks go the same way: datagrams, or in the connection. `None`: no track is set up.
    over_udp: Option<bool>,
    keep_alive: Duration,
}

impl Setup {
    /// Sets a track up in the connection, or over UDP where the camera wants that.
    async fn track(&mut self, index: usize, media: &Media, base: &str) -> Result<(), PullError> {
        let addresses = addresses(base, media.control.as_deref());
        let mut first = None;
        for over_udp in [false, true] {
            if self.over_udp.is_some_and(|agreed| agreed != over_udp) {
                continue;
            }
            for address in &addresses {
                let taken = if over_udp {
                    self.over_udp(index, address).await?
                } else {
                    self.interleaved(index, address).await?
                };
                match taken {
                    Ok(response) => {
                        self.over_udp = Some(over_udp);
                        self.keep_alive = keep_alive(&response);
                        return Ok(());
                    }
                    Err(refusal) => {
                        let other_way = matches!(refusal, PullError::Refused { status: 461, .. });
                        first.get_or_insert(refusal);
                        if other_way {
                            break;
                        }
                    }
                }
            }
        }
        Err(first.unwrap_or(PullError::Ended))
    }

    async fn interleaved(
        &mut self,
        index: usize,
        address: &str,
    ) -> Result<Result<Response, PullError>, PullError> {
        let wanted = u8::try_from(2 * index).unwrap_or(0);
        let transport = format!("RTP/AVP/TCP;unicast;interleaved={wanted}-{}", wanted + 1);
        let response = self.client.ask("SETUP", address, &[("Transport", &transport)]).await?;
        if !is_success(&response) {
            return Ok(Err(refused("SETUP", &response)));
        }
        let agreed = AgreedTransport::parse(response.header("transport").unwrap_or_default());
        if agreed.is_udp {
            return Ok(Err(PullError::Refused {
                method: "SETUP",
                status: 461,
                reason: "it offers UDP".to_owned(),
            }));
        }
        let channel = agreed.channel.unwrap_or(wanted);
        self.channels.push((channel, Channel::Rtp(index)));
        self.channels.push((channel + 1, Channel::Rtcp(index)));
        Ok(Ok(response))
    }

    async fn over_udp(
        &mut self,
        index: usize,
        address: &str,
    ) -> Result<Result<Response, PullError>, PullError> {
        let ports = Ports::bind(self.client.local)?;
        let (rtp, rtcp) = ports.own()?;
        let transport = format!("RTP/AVP;unicast;client_port={rtp}-{rtcp}");
        let response = self.client.ask("SETUP", address, &[("Transport", &transport)]).await?;
        if !is_success(&response) {
            return Ok(Err(refused("SETUP", &response)));
        }
        let agreed = AgreedTransport::parse(response.header("transport").unwrap_or_default());
        let from = self.client.peer;
        if let Some((rtp, rtcp)) = agreed.ports {
            // Firewalls let answers in where something went out.
            ports.greet(from, rtp, rtcp)?;
        }
        self.datagrams.add_from(index, ports, from, agreed.ports.map(|(_, rtcp)| rtcp))?;
        Ok(Ok(response))
    }
}

impl CameraSession {
    /// Takes what comes until the stream ends.
    async fn run(&mut self, publisher: &mut Publisher) -> Result<(), PullError> {
        let interval = |period| {
            let mut interval = tokio::time::interval(period);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        };
        let mut look = interval(LOOK);
        let mut keep_alive =
            tokio::time::interval_at(tokio::time::Instant::now() + self.keep_alive, self.keep_alive);
        keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut report = interval(REPORT_EVERY);
        loop {
            tokio::select! {
                message = self.client.link.next() => self.message(message, publisher).await?,
                (channel, bytes) = self.datagrams.next() => self.take(channel, &bytes, publisher),
                _ = keep_alive.tick() => self.keep_alive().await?,
                _ = report.tick() => self.report().await?,
                _ = look.tick() => {
                    if self.heard.elapsed() > PATIENCE {
                        return Err(PullError::Silent("sent nothing", PATIENCE));
                    }
                }
            }
        }
    }

    async fn message(
        &mut self,
        message: Result<Message, LinkError>,
        publisher: &mut Publisher,
    ) -> Result<(), PullError> {
        match message {
            Ok(Message::Packet { channel, bytes }) => self.packet(channel, &bytes, publisher),
            Ok(Message::Response(response)) => self.kept(&response).await?,
            Ok(Message::Request(request)) => return self.request(&request).await,
            // A hole in the stream is better than its end.
            Err(LinkError::Message(error)) => {
                if !std::mem::replace(&mut self.reported_damage, true) {
                    let camera = self.client.camera.origin();
                    tracing::warn!(camera, %error, "the camera sends what is no message; it is left out");
                }
                self.client.link.resynchronize();
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn request(&mut self, request: &Request) -> Result<(), PullError> {
        self.client.reply(request).await?;
        match request.method() {
            // Asked again, it says where.
            Method::Redirect | Method::Teardown => Err(PullError::Ended),
            _ => Ok(()),
        }
    }

    /// Takes an interleaved packet. Payload types distinguish two tracks on one channel.
    fn packet(&mut self, channel: u8, bytes: &[u8], publisher: &mut Publisher) {
        for at in 0..self.channels.len() {
            match self.channels.get(at) {
                Some(&(known, what)) if known == channel => self.take(what, bytes, publisher),
                _ => {}
            }
        }
    }

    fn take(&mut self, channel: Channel, bytes: &[u8], publisher: &mut Publisher) {
        match channel {
            Channel::Rtp(index) => {
                // Bytes that are no packet are left out; the feed reports if nothing can be used.
                if self.feed.rtp(index, bytes, publisher).is_ok() {
                    self.heard = Instant::now();
                }
            }
            Channel::Rtcp(index) => self.feed.rtcp(index, bytes),
        }
    }

    async fn keep_alive(&mut self) -> Result<(), PullError> {
        let aggregate = self.aggregate.clone();
        self.client.send(self.keeps_by, &aggregate, &[]).await
    }

    /// Takes the answer to what keeps the session. A camera that refuses it sends on, or ends.
    async fn kept(&mut self, response: &Response) -> Result<(), PullError> {
        if response.status == 401 && self.client.take_challenge(response).is_ok() {
            return self.keep_alive().await;
        }
        if response.status >= 400 {
            self.keeps_by = OPTIONS;
        }
        Ok(())
    }

    /// Says by RTCP that somebody is there.
    async fn report(&mut self) -> Result<(), PullError> {
        let packet = rtcp::receiver_alive(self.ssrc);
        for at in 0..self.channels.len() {
            if let Some(&(channel, Channel::Rtcp(_))) = self.channels.get(at) {
                let mut bytes = vec![b'$', channel, 0, packet.len() as u8];
                bytes.extend(packet);
                self.client.write(&bytes).await?;
            }
        }
        self.datagrams.report_all(&packet);
        Ok(())
    }
}

/// Some cameras have few sessions, and keep one over UDP until it times out.
impl Drop for CameraSession {
    fn drop(&mut self) {
        let aggregate = std::mem::take(&mut self.aggregate);
        if let Ok(text) = self.client.request("TEARDOWN", &aggregate, &[]) {
            // One who does not take it sees the connection close.
            let _ = self.client.link.source.try_write(text.as_bytes());
        }
    }
}

/// How often the session of this answer wants to hear of us: twice in its timeout.
fn keep_alive(response: &Response) -> Duration {
    let params = response.header("session").unwrap_or_default().split(';').skip(1);
    let mut timeouts = params.filter_map(|param| {
        let (name, value) = param.split_once('=')?;
        name.trim().eq_ignore_ascii_case("timeout").then(|| value.trim().parse().ok())?
    });
    let timeout = timeouts.next().map_or(SESSION_TIMEOUT, Duration::from_secs);
    (timeout / 2).clamp(KEEP_ALIVE.0, KEEP_ALIVE.1)
}

fn is_success(response: &Response) -> bool {
    (200..300).contains(&response.status)
}

fn refused(method: &'static str, response: &Response) -> PullError {
    let reason = response.reason.chars().filter(|c| !c.is_control()).take(MOST_REASON).collect();
    PullError::Refused { method, status: response.status, reason }
}

const GET_PARAMETER: &str = "GET_PARAMETER";
const OPTIONS: &str = "OPTIONS";
/// Characters of a camera's reason in the log.
const MOST_REASON: usize = 120;
