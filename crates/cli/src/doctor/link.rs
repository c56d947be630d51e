//! Tries the emulated link as the demo and the lab use it: namespaces, veth pairs, packet sockets.

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use freshwire::now;
use freshwire_link::Config;
use freshwire_netns::{Emulator, EmulatorOptions, Namespaces};
use serde::{Deserialize, Serialize};

/// Datagrams that are sent across. Chosen, not measured.
const DATAGRAMS: u32 = 20;

/// How long one datagram may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// Observations of the emulated link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Observation {
    /// Datagrams went across.
    Works {
        /// How late the emulator handed over the slowest 1 %, in microseconds.
        late_us: u64,
        /// Its thread has real-time priority.
        real_time: bool,
        /// The namespaces have IPv6.
        ipv6: bool,
    },
    /// The kernel refuses namespaces to this user.
    NotPermitted(String),
    /// Something else went wrong.
    Broken(String),
}

/// Makes the link in a process of its own.
pub(super) fn probe_in_child() -> Observation {
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => return Observation::Broken(format!("the program does not find itself: {error}")),
    };
    match Command::new(own).args(["doctor", "--probe-link"]).output() {
        Err(error) => Observation::Broken(format!("cannot start the probe: {error}")),
        Ok(output) => serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
            let said = String::from_utf8_lossy(&output.stderr);
            Observation::Broken(format!("the probe ended with {}: {}", output.status, said.trim()))
        }),
    }
}

/// Makes the link in this process, which is still single-threaded.
pub(super) fn probe() -> Observation {
    let namespaces = match Namespaces::create() {
        Ok(namespaces) => namespaces,
        Err(error) if error.is_not_permitted() => return Observation::NotPermitted(error.to_string()),
        Err(error) => return Observation::Broken(error.to_string()),
    };
    send_across(&namespaces).unwrap_or_else(|error| Observation::Broken(format!("{error:#}")))
}

fn send_across(namespaces: &Namespaces) -> anyhow::Result<Observation> {
    let config = Config::builder().delay(Duration::from_millis(1)).build()?;
    let emulator = Emulator::start(namespaces, config.clone(), config, EmulatorOptions::default())?;
    let far = namespaces.in_far(|| UdpSocket::bind((Namespaces::FAR_V4, 0)))??;
    let near = namespaces.in_near(|| UdpSocket::bind((Namespaces::NEAR_V4, 0)))??;
    far.set_read_timeout(Some(PATIENCE))?;
    near.connect(far.local_addr()?)?;
    let started = now();
    for number in 0..DATAGRAMS {
        near.send(&number.to_be_bytes())?;
        let mut arrived = [0; 4];
        if far.recv(&mut arrived).is_err() || u32::from_be_bytes(arrived) != number {
            let waited = now().saturating_since(started);
            return Ok(Observation::Broken(format!(
                "datagram {number} did not arrive, {waited:?} after the first"
            )));
        }
    }
    let account = emulator.stop();
    Ok(Observation::Works {
        late_us: u64::try_from(account.lateness.p99.as_micros()).unwrap_or(u64::MAX),
        real_time: account.real_time,
        ipv6: namespaces.has_ipv6(),
    })
}
