//! Connections to an end's own address that nobody took: most often 127.0.0.1 was meant to be the machine outside.

use std::path::Path;

use freshwire_netns::Namespaces;

/// What to tell whose program failed at an end where connections to that end's own addresses were refused.
pub(super) fn explanation(namespaces: &Namespaces) -> Option<String> {
    let look = || Counters::read(Path::new("/proc/thread-self/net"));
    let is_refused = |counters: Option<Counters>| counters.is_some_and(|counters| counters.own_refused());
    let near = namespaces.in_near(look).ok().flatten();
    let far = namespaces.in_far(look).ok().flatten();
    let (end, is_refused) = if is_refused(near) { ("near", true) } else { ("far", is_refused(far)) };
    is_refused.then(|| {
        let (near, far) = (Namespaces::NEAR_V4, Namespaces::FAR_V4);
        format!(
            "freshwire: something at the {end} end tried to reach an address of its own, where nobody listens. Inside a link \
             127.0.0.1 and localhost are the end itself, and not this machine: COMMAND is {near}, and what --peer runs is \
             {far}. --reach PORT makes a port of this machine reachable at {far}.\n"
        )
    })
}

/// What a network namespace counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    /// TCP connections that were asked for and did not come about.
    tcp_failed: u64,
    /// Datagrams for a port that nobody has.
    udp_no_port: u64,
    /// Packets on the loopback interface.
    loopback: u64,
}

impl Counters {
    fn read(folder: &Path) -> Option<Self> {
        let text = |name| std::fs::read_to_string(folder.join(name)).ok();
        Self::parse(&text("snmp")?, &text("dev")?)
    }

    fn parse(snmp: &str, dev: &str) -> Option<Self> {
        let loopback = dev.lines().find_map(|line| line.trim().strip_prefix("lo:"))?;
        Some(Self {
            tcp_failed: counter(snmp, "Tcp:", "AttemptFails")?,
            udp_no_port: counter(snmp, "Udp:", "NoPorts")?,
            loopback: loopback.split_whitespace().nth(1)?.parse().ok()?,
        })
    }

    /// The counters do not say which connection failed; without a packet on the loopback it was none to an own address.
    fn own_refused(self) -> bool {
        self.loopback > 0 && self.tcp_failed + self.udp_no_port > 0
    }
}

/// A value of `/proc/net/snmp`: a line of names and one of values for each protocol.
fn counter(snmp: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix(protocol));
    let place = lines.next()?.split_whitespace().position(|word| word == name)?;
    lines.next()?.split_whitespace().nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_within_an_end_are_counted() {
        let snmp = "Ip: Forwarding InReceives\nIp: 1 7\nTcp: ActiveOpens AttemptFails\nTcp: 5 2\n\
                    Udp: InDatagrams NoPorts\nUdp: 0 1\nUdpLite: InDatagrams NoPorts\nUdpLite: 0 9\n";
        let dev =
            "Inter-| Receive\n face |bytes    packets errs\n    lo:     112       2    0\n link0: 5 6 0\n";
        let counters = Counters::parse(snmp, dev).unwrap();
        assert_eq!(counters, Counters { tcp_failed: 2, udp_no_port: 1, loopback: 2 });
        assert!(counters.own_refused());
        assert!(!Counters { loopback: 0, ..counters }.own_refused(), "it was at the other end");
        assert!(!Counters { tcp_failed: 0, udp_no_port: 0, ..counters }.own_refused());
        assert_eq!(Counters::parse("", dev), None);
    }
}
