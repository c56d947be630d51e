use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use freshwire_link::{Config, Direction, Loss, Schedule};
use freshwire_record::{Rate, parse_duration, parse_share, parse_size};

use super::reach::Route;

/// Run a program behind an emulated link, without root.
///
/// COMMAND runs at the near end of a link of its own (10.77.0.1, fd77::1); the far end is 10.77.0.2 and fd77::2.
/// `--peer` runs a program there, `--reach` makes a TCP port of this machine reachable there; 127.0.0.1 is the end itself.
/// Up is from COMMAND to the far end, down is back.
///
/// A value applies to both directions; `up=VALUE` or `down=VALUE` to one, and then wins over a value for both:
/// `--rate 6Mbit --rate up=512kbit`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  freshwire link --rate 1Mbit --delay 50ms --peer 'iperf3 -s -1' -- iperf3 -c 10.77.0.2
  freshwire link --rate down=2Mbit --loss 1% --reach 8080 -- curl -o /dev/null http://10.77.0.2:8080/video
  freshwire link --delay 20ms --outage 5s+2s -- ping -c 10 10.77.0.2
  freshwire link --no-udp 10s --peer my-server -- my-client

Exit code: that of COMMAND, 128 + n if signal n ended it, 2 if the link could not be set up.")]
pub(crate) struct LinkArgs {
    /// Rate, counting whole IP packets, such as 512kbit (1000 bit) or 512Kibit (1024 bit); unlimited by default.
    #[arg(long, value_name = "RATE", value_parser = setting(from_str::<Rate>))]
    rate: Vec<Setting<Rate>>,

    /// File with the rate over time: lines `SECONDS RATE`, the first at 0; RATE may be `0` or `unlimited`, and a last
    /// line `SECONDS repeat` starts it again.
    #[arg(long, value_name = "FILE", value_parser = setting(from_str::<PathBuf>))]
    trace: Vec<Setting<PathBuf>>,

    /// Nothing passes for LENGTH, START after the beginning, such as 10s+500ms. May be given several times.
    #[arg(long, value_name = "START+LENGTH", value_parser = setting(outage))]
    outage: Vec<Setting<(Duration, Duration)>>,

    /// One-way delay, such as 50ms.
    #[arg(long, value_name = "TIME", value_parser = setting(parse_duration))]
    delay: Vec<Setting<Duration>>,

    /// Queue in bytes, such as 15000 or 64KiB [default: 15000]. What does not fit is dropped.
    #[arg(long, value_name = "SIZE", value_parser = setting(parse_size))]
    queue: Vec<Setting<u64>>,

    /// Share of the packets that the wire loses, such as 5%.
    #[arg(long, value_name = "SHARE", value_parser = setting(parse_share))]
    loss: Vec<Setting<f64>>,

    /// Lose packets in runs of this mean length instead of singly (Gilbert-Elliott).
    #[arg(long, value_name = "PACKETS", value_parser = setting(from_str::<f64>))]
    burst: Vec<Setting<f64>>,

    /// Share of the packets that arrive late, and how much later than otherwise, such as 1%+5ms. Packets behind them overtake
    /// them.
    #[arg(long, value_name = "SHARE+TIME", value_parser = setting(reordering))]
    reorder: Vec<Setting<(f64, Duration)>>,

    /// No UDP passes from this time after the beginning on, as behind many firewalls; 0s is from the start.
    #[arg(long, value_name = "START", value_parser = parse_duration)]
    pub(super) no_udp: Option<Duration>,

    /// Decides which packets are lost or late: the same seed loses the same packets.
    #[arg(long, default_value_t = 0)]
    pub(super) seed: u64,

    /// Run a shell command at the far end first and until COMMAND ends; its output goes to standard error.
    #[arg(long, value_name = "SHELL COMMAND")]
    pub(super) peer: Option<String>,

    /// Make a TCP port of this machine reachable at the far end: PORT for 127.0.0.1:PORT, or PORT=HOST:PORT. A proxy there
    /// accepts the connections: the server behind it does not see the link, and a live server cannot adapt to it. Run such a
    /// server with --peer. May be given several times.
    #[arg(long, value_name = "PORT[=HOST:PORT]")]
    pub(super) reach: Vec<Route>,

    /// Write a packet log in pcapng format, with what both ends send and receive, and why packets were dropped.
    #[arg(long, value_name = "FILE")]
    pub(super) pcap: Option<PathBuf>,

    /// Form of the account at the end. `none` still tells when the machine was too busy to keep to the link's model.
    #[arg(long, value_enum, value_name = "FORM", default_value_t = AccountFormat::Text)]
    pub(super) account: AccountFormat,

    /// Write the account to a file instead of standard error.
    #[arg(long, value_name = "FILE")]
    pub(super) account_file: Option<PathBuf>,

    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum AccountFormat {
    Text,
    Json,
    None,
}

/// A value for one direction, or for both.
#[derive(Clone, Debug, PartialEq)]
struct Setting<T> {
    direction: Option<Direction>,
    value: T,
}

impl LinkArgs {
    /// What the arguments say about one direction.
    pub(super) fn config(&self, direction: Direction) -> anyhow::Result<Config> {
        let mut builder = Config::builder().seed(self.seed);
        match (pick(&self.rate, direction), pick(&self.trace, direction)) {
            (Some(_), Some(_)) => bail!("give either --rate or --trace"),
            (Some(rate), None) => builder = builder.rate(*rate),
            (None, Some(path)) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                let schedule = Schedule::parse(&text).with_context(|| format!("trace {}", path.display()))?;
                builder = builder.schedule(schedule);
            }
            (None, None) => {}
        }
        for (start, length) in all(&self.outage, direction) {
            builder = builder.outage(*start, *length);
        }
        if let Some(delay) = pick(&self.delay, direction) {
            builder = builder.delay(*delay);
        }
        if let Some(bytes) = pick(&self.queue, direction) {
            builder = builder.queue_bytes(*bytes);
        }
        if let Some((share, late_by)) = pick(&self.reorder, direction) {
            builder = builder.reorder(*share, *late_by);
        }
        match (pick(&self.loss, direction), pick(&self.burst, direction)) {
            (Some(&share), Some(&mean_packets)) => {
                builder = builder.loss(Loss::Burst { share, mean_packets })
            }
            (Some(&share), None) => builder = builder.loss(Loss::Random { share }),
            (None, Some(_)) => bail!("--burst says how long losses last: say with --loss how many there are"),
            (None, None) => {}
        }
        Ok(builder.build()?)
    }
}

/// The last value that names the direction, else the last for both.
fn pick<T>(settings: &[Setting<T>], direction: Direction) -> Option<&T> {
    let last = |wanted| settings.iter().rev().find(|setting| setting.direction == wanted);
    last(Some(direction)).or_else(|| last(None)).map(|setting| &setting.value)
}

/// Every value that applies to the direction.
fn all<T>(settings: &[Setting<T>], direction: Direction) -> impl Iterator<Item = &T> {
    let applies = move |setting: &&Setting<T>| setting.direction.is_none_or(|named| named == direction);
    settings.iter().filter(applies).map(|setting| &setting.value)
}

/// A parser of `VALUE`, `up=VALUE` and `down=VALUE`.
fn setting<T, E>(parse: fn(&str) -> Result<T, E>) -> impl Fn(&str) -> Result<Setting<T>, E> + Clone {
    move |text| {
        let (direction, text) = match text.split_once('=') {
            Some(("up", value)) => (Some(Direction::Up), value),
            Some(("down", value)) => (Some(Direction::Down), value),
            _ => (None, text),
        };
        Ok(Setting { direction, value: parse(text)? })
    }
}

fn from_str<T: FromStr>(text: &str) -> Result<T, T::Err> {
    text.parse()
}

fn outage(text: &str) -> Result<(Duration, Duration), String> {
    let (start, length) = text.split_once('+').ok_or("write START+LENGTH, such as 10s+500ms")?;
    let parse = |text| parse_duration(text).map_err(|error| error.to_string());
    Ok((parse(start)?, parse(length)?))
}

fn reordering(text: &str) -> Result<(f64, Duration), String> {
    let (share, late_by) = text.split_once('+').ok_or("write SHARE+TIME, such as 1%+5ms")?;
    let share = parse_share(share).map_err(|error| error.to_string())?;
    Ok((share, parse_duration(late_by).map_err(|error| error.to_string())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        link: LinkArgs,
    }

    fn parse(arguments: &str) -> Result<LinkArgs, clap::Error> {
        let arguments = format!("link {arguments} -- true");
        Cli::try_parse_from(arguments.split_whitespace()).map(|cli| cli.link)
    }

    fn config(arguments: &str, direction: Direction) -> Config {
        parse(arguments).unwrap().config(direction).unwrap()
    }

    fn rate(text: &str) -> Schedule {
        Schedule::constant(text.parse().unwrap())
    }

    #[test]
    fn a_value_applies_to_both_directions_and_a_named_one_wins() {
        let arguments = "--rate up=512kbit --rate 6Mbit --delay 50ms --loss down=5% --seed 7";
        let (up, down) = (config(arguments, Direction::Up), config(arguments, Direction::Down));
        assert_eq!((up.schedule(), down.schedule()), (&rate("512kbit"), &rate("6Mbit")));
        assert_eq!((up.delay(), down.delay()), (Duration::from_millis(50), Duration::from_millis(50)));
        assert_eq!((up.loss(), down.loss()), (Loss::None, Loss::Random { share: 0.05 }));
        assert_eq!((up.seed(), up.queue_bytes()), (7, 15_000));
    }

    #[test]
    fn outages_bursts_and_reordering() {
        let arguments =
            "--rate 1Mbit --outage 1s+500ms --outage down=4s+1s --loss 5% --burst 3 --reorder up=1%+5ms";
        let up = config(arguments, Direction::Up);
        assert_eq!(up.reordering(), (0.01, Duration::from_millis(5)));
        assert_eq!(config(arguments, Direction::Down).reordering(), (0.0, Duration::ZERO));
        assert_eq!(up.schedule(), &Schedule::parse("0 1Mbit\n1 0\n1.5 1Mbit").unwrap());
        assert_eq!(up.loss(), Loss::Burst { share: 0.05, mean_packets: 3.0 });
    }

    #[test]
    fn impossible_settings_are_refused_with_a_reason() {
        for (arguments, reason) in [
            ("--burst 3", "--burst says how long losses last: say with --loss how many there are"),
            ("--rate 1Mbit --trace x", "give either --rate or --trace"),
            (
                "--trace /does/not/exist",
                "cannot read /does/not/exist: No such file or directory (os error 2)",
            ),
        ] {
            let error = parse(arguments).unwrap().config(Direction::Up).unwrap_err();
            assert_eq!(format!("{error:#}"), reason);
        }
        for arguments in [
            "--rate 5kb",
            "--loss 101%",
            "--outage 5s",
            "--delay 50",
            "--reach x",
            "--account xml",
            "--reorder 1%",
        ] {
            assert!(parse(arguments).is_err(), "{arguments}");
        }
    }
}
