//! One run: a stream, a sender, a link and a viewer, for a while.

use std::fs::OpenOptions;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use freshwire_netns::{Emulator, EmulatorOptions, Namespaces};
use freshwire_record::Timestamp;
use serde::{Deserialize, Serialize};

use super::decode::{ReceivedPicture, Whole};
use super::identify::identify;
use super::plain;
use super::receive::{Viewer, ViewerLog};
use super::schema::{Decoded, Picture, Plan, Run, Sound, Window};
use super::scheme::Scheme;
use super::source::Source;
use crate::scenario::directions;
use crate::scenario::wait_until;
use crate::schema::{Environment, Trust};
use crate::viewers::server::{self, Server};

/// From the start of a server to the begin of the source's clock.
const FEED_LEAD: Duration = Duration::from_millis(500);

/// From the viewer's connection to the window: lost packets of the handshake are repeated within it.
const JOIN_LEAD: Duration = Duration::from_secs(2);

/// A source that is later than this has not offered what it says.
const MAX_LATENESS: Duration = Duration::from_millis(40);

/// A run to make.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(super) plan: Plan,
    /// The prepared stream.
    pub(super) file: PathBuf,
    /// The folder for what is not a result: the servers' log, their settings, pictures.
    pub(super) folder: PathBuf,
}

/// The stream of a run, and the time that counts.
struct Course {
    source: Source,
    /// The position of the picture with which the window begins.
    first: usize,
    window: Window,
}

impl Course {
    fn of(task: &Task) -> anyhow::Result<Self> {
        let source = Source::read(&task.file)?;
        let [skip, duration] = [task.plan.skip_s, task.plan.duration_s].map(Duration::from_secs_f64);
        let (first, window) =
            source.window(skip, duration).with_context(|| format!("the stream {}", task.plan.stream.name))?;
        Ok(Self { source, first, window })
    }

    /// When the window's first picture is handed over, where the source's clock began at `begin`.
    fn first_offer(&self, begin: Timestamp) -> Timestamp {
        begin + Duration::from_nanos(self.source.pictures[self.first].offered_ns)
    }

    fn end(&self, begin: Timestamp) -> Timestamp {
        begin + Duration::from_nanos(self.window.until_ns)
    }
}

/// The viewer's account of a run.
struct Viewing {
    seen: ViewerLog,
    /// When the source's clock began.
    begin: Timestamp,
    /// By how much the source was late at most.
    lateness: Duration,
    faults: Vec<String>,
}

/// Makes a run. Call while the process has one thread.
pub(crate) fn measure(task: Task, environment: Environment) -> anyhow::Result<Run> {
    let course = Course::of(&task)?;
    let Viewing { seen, begin, lateness, mut faults } = match task.plan.scheme {
        Scheme::Tcp => over_plain_tcp(&task, &course)?,
        _ => through_a_server(&task, &course)?,
    };
    if lateness > MAX_LATENESS {
        faults.push(format!("the source was {:.0} ms late", lateness.as_secs_f64() * 1e3));
    }
    let Course { source, first, window } = &course;
    let since_begin = |at: Timestamp| at.saturating_since(begin).as_nanos() as u64;
    let counts = |at: u64| (window.from_ns..=window.until_ns).contains(&at);
    let places = identify(&source.pictures, source.codec, &seen.frames);
    let mut pictures = source.offered(*first, *window);
    for (frame, place) in seen.frames.iter().zip(&places) {
        let arrived_ns = since_begin(frame.at);
        let picture = place.and_then(|place| pictures.get_mut(place.checked_sub(*first)?));
        if let Some(picture) = picture.filter(|_| arrived_ns <= window.until_ns) {
            // Where it comes twice, the first time counts. A picture before its time is due to rounding.
            picture.arrived_ns = picture.arrived_ns.or(Some(arrived_ns.max(picture.offered_ns)));
        }
    }
    let decoded = decode(&task, &course, &seen, &places, &pictures)?;
    let sound = (!source.sound.is_empty()).then(|| Sound {
        offered: source.sound.iter().filter(|(at, _)| counts(*at)).count() as u64,
        arrived: seen.sound.iter().filter(|at| counts(since_begin(**at))).count() as u64,
    });
    let reads = seen.reads.iter().filter(|(at, _)| counts(since_begin(*at)));
    Ok(Run {
        trust: Trust::of(&faults),
        window: *window,
        pictures,
        received_bytes: reads.map(|(_, bytes)| *bytes as u64).sum(),
        sound,
        decoded,
        metrics: None,
        plan: task.plan,
        environment,
    })
}

fn decode(
    task: &Task,
    course: &Course,
    seen: &ViewerLog,
    places: &[Option<usize>],
    pictures: &[Picture],
) -> anyhow::Result<Decoded> {
    let decodable = super::metrics::decodable(pictures);
    let received = seen.frames.iter().zip(places).map(|(frame, &place)| ReceivedPicture {
        ticks: frame.ticks,
        bytes: &frame.bytes,
        place,
        decodable_ns: place.and_then(|place| *decodable.get(place.checked_sub(course.first)?)?),
    });
    let received: Vec<ReceivedPicture<'_>> = received.collect();
    let whole = Whole::of(&course.source, course.window, &task.file)?;
    let stills = task.folder.join(STILLS_FOLDER);
    std::fs::create_dir_all(&stills).with_context(|| format!("cannot make {}", stills.display()))?;
    whole.stills(&stills.join(camera_name(&task.plan)))?;
    let work = task.folder.join(format!("work-{}", std::process::id()));
    std::fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    let judged = whole.judge(&received, &work, &stills.join(picture_name(&task.plan)));
    // The folder is useless afterwards.
    let _ = std::fs::remove_dir_all(&work);
    let mut decoded = judged?;
    decoded.torn += seen.damage;
    Ok(decoded)
}

pub(super) const STILLS_FOLDER: &str = "stills";

/// The prefix of the names of the camera's stills.
pub(super) fn camera_name(plan: &Plan) -> String {
    format!(
        "{}-{}-{}s-{}s-camera",
        file_name(&plan.stream.name),
        plan.stream.bytes,
        plan.skip_s,
        plan.duration_s
    )
}

/// The prefix of the names of a run's stills.
pub(super) fn picture_name(plan: &Plan) -> String {
    let link = &plan.link;
    format!(
        "{}-{}-{}-{}-{}-{}-{}s-{}s-{}-seed{}",
        file_name(&plan.stream.name),
        plan.stream.bytes,
        link.rate_bps.unwrap_or(0),
        link.delay_ms,
        link.loss,
        link.queue_bytes.unwrap_or(0),
        plan.skip_s,
        plan.duration_s,
        plan.scheme,
        link.seed
    )
}

fn file_name(name: &str) -> String {
    name.chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || letter == '+' { letter } else { '_' })
        .collect()
}

/// `freshwire serve` or another server, fed through its standard input.
fn through_a_server(task: &Task, course: &Course) -> anyhow::Result<Viewing> {
    let namespaces = Namespaces::create()?;
    let log = task.folder.join("server.log");
    let log = OpenOptions::new().create(true).append(true).open(log).context("cannot open server.log")?;
    let kind = if task.plan.scheme == Scheme::Gstreamer { Server::Gstreamer } else { Server::Freshwire };
    let settings = settings(task.plan.scheme, &task.folder)?;
    let mut server = server::Running::start(kind, settings.as_deref(), &namespaces, log)?;
    let input = server.input()?;
    let begin = freshwire_io::now() + FEED_LEAD;
    let source = &course.source;
    // The server ends with this closure, whatever becomes of it, and with the server the feeder.
    std::thread::scope(move |scope| {
        let feeder = scope.spawn(move || source.feed(input, begin));
        server.wait_until_it_listens(&namespaces)?;
        let offered = course.first_offer(begin);
        wait_until(offered - JOIN_LEAD);
        let emulator = open_link(&namespaces, &task.plan)?;
        let socket = namespaces
            .in_far(|| TcpStream::connect(server::address()))?
            .context("the viewer cannot connect across the link")?;
        let viewer = Viewer::of_server(socket, server::url(), !source.sound.is_empty())?;
        wait_until(course.end(begin));
        let seen = viewer.stop()?;
        let mut faults = emulator.stop().faults;
        // GStreamer's server has nothing to describe before a keyframe.
        let has_to_wait = kind == Server::Gstreamer;
        faults.extend(faults_of(&seen, offered).filter(|_| !has_to_wait));
        if !server.is_alive() {
            faults.push("the server had ended".to_owned());
        }
        drop(server);
        let lateness = feeder.join().map_err(|_| anyhow::anyhow!("the feeder panicked"))?;
        Ok(Viewing { seen, begin, lateness, faults })
    })
}

fn over_plain_tcp(task: &Task, course: &Course) -> anyhow::Result<Viewing> {
    let namespaces = Namespaces::create()?;
    let listener =
        namespaces.in_near(|| TcpListener::bind((Namespaces::NEAR_V4, 0)))?.context("cannot listen")?;
    let address = listener.local_addr().context("cannot listen")?;
    let emulator = open_link(&namespaces, &task.plan)?;
    // Pictures before the window are not sent, and so their time need not pass.
    let before = course.first_offer(Timestamp::ZERO).saturating_since(Timestamp::ZERO + JOIN_LEAD);
    let begin = freshwire_io::now() - before;
    let far = namespaces
        .in_far(|| TcpStream::connect(address))?
        .context("the viewer cannot connect across the link")?;
    let (near, _) = listener.accept().context("cannot accept")?;
    let writer = near.try_clone().context("cannot duplicate a socket")?;
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || plain::send(&course.source, course.first, writer, begin));
        let viewer = Viewer::of_plain(far)?;
        wait_until(course.end(begin));
        let seen = viewer.stop()?;
        // Wakes the sender up, which waits for a link that is gone.
        near.shutdown(Shutdown::Both).context("cannot end the connection")?;
        let mut faults = emulator.stop().faults;
        faults.extend(faults_of(&seen, course.first_offer(begin)));
        let lateness = sender.join().map_err(|_| anyhow::anyhow!("the sender panicked"))?;
        Ok(Viewing { seen, begin, lateness, faults })
    })
}

fn open_link(namespaces: &Namespaces, plan: &Plan) -> anyhow::Result<Emulator> {
    let [up, down] = directions(&plan.link)?;
    Ok(Emulator::start(namespaces, up, down, EmulatorOptions::default())?)
}

fn faults_of(seen: &ViewerLog, offered: Timestamp) -> impl Iterator<Item = String> {
    let late = seen.joined.is_none_or(|joined| joined > offered);
    let late = late.then(|| "the viewer joined after the first keyframe".to_owned());
    late.into_iter().chain(seen.ended.as_ref().map(|reason| format!("the connection had ended: {reason}")))
}

/// The settings of a latency that is fixed in advance.
fn settings(scheme: Scheme, folder: &Path) -> anyhow::Result<Option<PathBuf>> {
    let Scheme::Deadline(latency) = scheme else { return Ok(None) };
    let path = folder.join(format!("{scheme}.toml"));
    // Runs side by side write the same.
    std::fs::write(&path, format!("[hub]\nlatency = \"{}ms\"\n", latency.as_millis()))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Some(path))
}
