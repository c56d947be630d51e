//! TCP ports of this machine, made reachable at the far end by a relay.
//!
//! The process itself never leaves its own network namespace: the relay listens on a socket that was created at the
//! far end and connects with one that was created here.

use std::io;
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use freshwire_netns::Namespaces;

use crate::output::say;

/// Connections that a route carries at once; further ones are closed at once.
const MAX_CONNECTIONS: usize = 256;

/// A port at the far end and what is reached through it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    far_port: u16,
    target: String,
}

impl FromStr for Route {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (port, target) = text.split_once('=').unwrap_or((text, ""));
        let far_port = parse_port(port).ok_or_else(|| format!("{port:?} is not a port from 1 to 65535"))?;
        if target.is_empty() && !text.contains('=') {
            return Ok(Self { far_port, target: format!("127.0.0.1:{far_port}") });
        }
        match target.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && parse_port(port).is_some() => {
                Ok(Self { far_port, target: target.to_owned() })
            }
            _ => Err(format!("{target:?} is not HOST:PORT")),
        }
    }
}

fn parse_port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|&port| port > 0)
}

/// Starts to relay, on the far end's addresses, until the process ends.
pub(super) fn open(namespaces: &Namespaces, route: &Route) -> anyhow::Result<()> {
    let mut addresses: Vec<IpAddr> = vec![Namespaces::FAR_V4.into()];
    if namespaces.has_ipv6() {
        addresses.push(Namespaces::FAR_V6.into());
    }
    let connections = Arc::new(AtomicUsize::new(0));
    for address in addresses {
        let listener = namespaces
            .in_far(|| TcpListener::bind((address, route.far_port)))?
            .with_context(|| format!("cannot listen on port {} at the far end", route.far_port))?;
        let target = route.target.clone();
        let connections = Arc::clone(&connections);
        std::thread::Builder::new()
            .name("reach".to_owned())
            .spawn(move || serve(&listener, &target, &connections))?;
    }
    Ok(())
}

fn serve(listener: &TcpListener, target: &str, connections: &Arc<AtomicUsize>) {
    loop {
        let accepted = match listener.accept() {
            Ok((accepted, _)) => accepted,
            // The far end gave up, or descriptors are short: neither ends the service.
            Err(_) => {
                std::thread::sleep(std::time::Duration::from_millis(10));
                continue;
            }
        };
        if connections.load(Ordering::Relaxed) >= MAX_CONNECTIONS {
            say(&format!("freshwire: a connection to {target} was refused: {MAX_CONNECTIONS} are open"));
            continue;
        }
        connections.fetch_add(1, Ordering::Relaxed);
        let target = target.to_owned();
        let open = Arc::clone(connections);
        let relayed = std::thread::Builder::new().name("relay".to_owned()).spawn(move || {
            if let Err(error) = relay(&accepted, &target) {
                say(&format!("freshwire: cannot reach {target}: {error}"));
            }
            open.fetch_sub(1, Ordering::Relaxed);
        });
        if let Err(error) = relayed {
            connections.fetch_sub(1, Ordering::Relaxed);
            say(&format!("freshwire: cannot relay: {error}"));
        }
    }
}

/// Carries bytes both ways until both directions are closed. Fails only if the target cannot be reached.
fn relay(far: &TcpStream, target: &str) -> io::Result<()> {
    let here = TcpStream::connect(target)?;
    let _ = far.set_nodelay(true);
    let _ = here.set_nodelay(true);
    std::thread::scope(|scope| {
        scope.spawn(|| carry(far, &here));
        carry(&here, far);
    });
    Ok(())
}

fn carry(mut from: &TcpStream, mut to: &TcpStream) {
    match io::copy(&mut from, &mut to) {
        // A half-closed connection stays open the other way.
        Ok(_) => drop(to.shutdown(Shutdown::Write)),
        Err(_) => {
            drop(from.shutdown(Shutdown::Both));
            drop(to.shutdown(Shutdown::Both));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes() {
        for (text, far_port, target) in [
            ("80", 80, "127.0.0.1:80"),
            ("80=localhost:8080", 80, "localhost:8080"),
            ("80=[::1]:8080", 80, "[::1]:8080"),
        ] {
            assert_eq!(text.parse(), Ok(Route { far_port, target: target.to_owned() }), "{text}");
        }
        for text in ["", "0", "65536", "x", "80=", "80=8080", "80=:8080", "80=host:0", "=host:80"] {
            assert!(text.parse::<Route>().is_err(), "{text}");
        }
    }
}
