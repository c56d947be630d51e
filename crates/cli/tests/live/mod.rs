//! A running `freshwire serve`, and those who publish to it and view from it.

mod credentials;
pub(crate) mod crowd;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use freshwire_media::demux::{self, Demux, Event};
use freshwire_media::unit::Kind;

use crate::wait::wait_until;

/// Pictures of a clip in a second.
pub(crate) const RATE: u64 = 30;

/// Whether ffmpeg is there. In CI it has to be.
pub(crate) fn has_ffmpeg() -> bool {
    let there = Command::new("ffmpeg").arg("-version").output().is_ok_and(|output| output.status.success());
    if !there {
        assert!(std::env::var_os("CI").is_none(), "ffmpeg is needed in CI");
        println!("skipped: ffmpeg is not on this machine");
    }
    there
}

/// A folder with clips of two seconds and a keyframe each half: `small` is 320x180, `large` 640x360, each as `.h264`,
/// `.ts` and `.mp4`.
pub(crate) fn clips() -> &'static Path {
    static CLIPS: OnceLock<tempfile::TempDir> = OnceLock::new();
    let make = || {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, size) in [("small", "320x180"), ("large", "640x360")] {
            let made = folder.path().join(name).with_extension("h264");
            let source = format!("testsrc2=size={size}:rate={RATE}:duration=2");
            let encoder = "-c:v libx264 -preset ultrafast -g 15 -bf 0 -pix_fmt yuv420p -threads 1";
            ffmpeg(&format!("-f lavfi -i {source} {encoder}"), &made);
            for ending in ["ts", "mp4"] {
                ffmpeg(&format!("-r {RATE} -i {} -c copy", made.display()), &made.with_extension(ending));
            }
        }
        folder
    };
    CLIPS.get_or_init(make).path()
}

fn ffmpeg(arguments: &str, made: &Path) {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-loglevel", "error", "-y"]).args(arguments.split(' ')).arg(made);
    let output = command.output().expect("ffmpeg runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A program whose output lines are collected. It is killed when dropped.
pub(crate) struct Program {
    child: Child,
    lines: Arc<Mutex<String>>,
}

impl Program {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let lines = Arc::new(Mutex::new(String::new()));
        let outputs: [Box<dyn std::io::Read + Send>; 2] =
            [Box::new(child.stdout.take().expect("a pipe")), Box::new(child.stderr.take().expect("a pipe"))];
        for output in outputs {
            let lines = Arc::clone(&lines);
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    *lock(&lines) += &format!("{line}\n");
                }
            });
        }
        Self { child, lines }
    }

    /// All that it has said.
    pub(crate) fn log(&self) -> String {
        lock(&self.lines).clone()
    }

    /// Waits until it has said this.
    #[track_caller]
    pub(crate) fn says(&self, text: &str) {
        wait_until(|| self.log().contains(text), || format!("{text:?} is not in the log:\n{}", self.log()));
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()));
    }

    /// Bytes of its memory that are resident.
    pub(crate) fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("resident memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(&mut self) -> ExitStatus {
        let mut status = None;
        let lines = Arc::clone(&self.lines);
        wait_until(
            || {
                status = self.child.try_wait().expect("it can be waited for");
                status.is_some()
            },
            || format!("it does not end:\n{}", lock(&lines)),
        );
        status.expect("it has ended")
    }

    /// What it reads.
    pub(crate) fn input(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().expect("a pipe")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A live server.
pub(crate) struct Server(pub(crate) Program);

impl Server {
    /// On ports that are free, with these arguments.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_on(["127.0.0.1:0"; 2], arguments)
    }

    /// With RTSP and HTTP on these addresses.
    pub(crate) fn start_on([rtsp, http]: [&str; 2], arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_freshwire"));
        command.args(["serve", "--listen-rtsp", rtsp, "--listen-http", http, "--listen-internal", "none"]);
        command.args(["--listen-rtmp", "127.0.0.1:0"]);
        let server = Self(Program::start(command.args(arguments).stdin(Stdio::piped())));
        server.0.says("\nhttp ");
        server
    }

    /// Where it listens for this protocol.
    pub(crate) fn address(&self, protocol: &str) -> SocketAddr {
        let log = self.0.log();
        let address = log.lines().find_map(|line| line.strip_prefix(protocol)?.trim().parse().ok());
        address.unwrap_or_else(|| panic!("no address for {protocol}:\n{log}"))
    }

    /// The stream's address for RTSP.
    pub(crate) fn rtsp(&self, stream: &str) -> String {
        format!("rtsp://{}/{stream}", self.address("rtsp "))
    }

    /// An encoder that publishes a clip again and again.
    pub(crate) fn publisher(&self, clip: &str, stream: &str) -> Program {
        let clip = clips().join(clip);
        let mut command = Command::new("ffmpeg");
        command.args(["-nostdin", "-loglevel", "error", "-re", "-stream_loop", "-1", "-i"]).arg(clip);
        command.args(["-c", "copy", "-f", "rtsp", "-rtsp_transport", "tcp"]).arg(self.rtsp(stream));
        Program::start(&mut command)
    }
}

/// A player that decodes a stream over RTSP and counts pictures. Its output has ffmpeg's errors as well.
pub(crate) fn ffmpeg_player(url: &str, seconds: &str) -> Program {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-loglevel", "error", "-rtsp_transport", "tcp", "-i", url, "-t", seconds]);
    Program::start(command.args("-f null -progress pipe:1 -stats_period 0.2 -".split(' ')))
}

/// Pictures that a player of ffmpeg has counted.
pub(crate) fn pictures(player: &Program) -> u64 {
    let log = player.log();
    log.lines().filter_map(|line| line.strip_prefix("frame=")?.trim().parse().ok()).next_back().unwrap_or(0)
}

/// What a player of MPEG-TS has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observation {
    pub(crate) bytes: u64,
    /// Decode times of its pictures in nanoseconds.
    pub(crate) pictures: Vec<i64>,
    pub(crate) keys: usize,
    /// Widths of the pictures, each once in a row.
    pub(crate) widths: Vec<u32>,
    /// Why it has ended.
    pub(crate) end: Option<String>,
}

/// A player of MPEG-TS over HTTP. It leaves when it is dropped.
pub(crate) struct Player {
    seen: Arc<Mutex<Observation>>,
    socket: TcpStream,
}

impl Player {
    pub(crate) fn start(http: SocketAddr, stream: &str) -> std::io::Result<Self> {
        let mut socket = TcpStream::connect(http)?;
        write!(socket, "GET /{stream}.ts HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\n\r\n")?;
        let seen = Arc::new(Mutex::new(Observation::default()));
        let (mine, reader) = (Arc::clone(&seen), socket.try_clone()?);
        std::thread::spawn(move || {
            let end = play(reader, &mine).err().map_or("end of stream".to_owned(), |error| error.to_string());
            lock(&mine).end = Some(end);
        });
        Ok(Self { seen, socket })
    }

    pub(crate) fn seen(&self) -> Observation {
        lock(&self.seen).clone()
    }

    /// Waits until it has seen this.
    #[track_caller]
    pub(crate) fn sees(&self, server: &Server, wanted: impl Fn(&Observation) -> bool) {
        let what = || format!("a player has seen {:?};\n{}", self.seen(), server.0.log());
        wait_until(|| wanted(&self.seen()), what);
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

fn play(socket: TcpStream, seen: &Mutex<Observation>) -> Result<(), Box<dyn std::error::Error>> {
    let mut reader = BufReader::new(socket);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    if !line.starts_with("HTTP/1.1 200") {
        return Err(line.into());
    }
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line)?;
    }
    let mut demux = Demux::new(demux::Config::default());
    let mut bytes = vec![0; 16 << 10];
    loop {
        let count = reader.read(&mut bytes)?;
        if count == 0 {
            return Ok(());
        }
        demux.push(&bytes[..count]);
        let mut seen = lock(seen);
        seen.bytes += count as u64;
        for event in demux.by_ref() {
            match event? {
                Event::Tracks(tracks) => {
                    let width = tracks.video.as_ref().map(|video| video.width);
                    let last = seen.widths.last().copied();
                    seen.widths.extend(width.filter(|width| last != Some(*width)));
                }
                Event::Unit(unit) if unit.head.kind == Kind::Video => {
                    seen.pictures.push(unit.head.dts.as_nanos());
                    seen.keys += usize::from(unit.head.key);
                }
                Event::Unit(_) => {}
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A file in a folder of its own, which goes with it.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// Writes a file and tells its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }

    /// The paths of a new certificate for `localhost` and of its key.
    pub(crate) fn certificate(&self) -> [PathBuf; 2] {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        [self.write("cert.pem", &made.cert.pem()), self.write("key.pem", &made.signing_key.serialize_pem())]
    }
}
