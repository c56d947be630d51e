//! What a group saves: bytes on the wire, headers of IP and UDP included, beside a connection to each member. The numbers in
//! docs/lab-notebook are what this prints.

use super::*;

const MESSAGES: u64 = 250;
const LEN: usize = 5000;
const EVERY: Duration = Duration::from_millis(20);
const LIFETIME: Duration = Duration::from_secs(2);
/// More than a group sends for them.
const PACKETS: usize = 4000;
/// IP and UDP.
const HEADERS: u64 = 28;

/// Bytes that the sender sends, and that all members send.
#[derive(Clone, Copy)]
struct Sent {
    out: u64,
    back: u64,
}

fn connections(pairs: &[Pair]) -> Sent {
    let sent = |side: usize| {
        let stats = pairs.iter().map(|pair| pair.ends[side].connection.stats());
        stats.map(|stats| stats.bytes_sent + HEADERS * stats.packets_sent).sum()
    };
    Sent { out: sent(0), back: sent(1) }
}

fn check(pairs: &[Pair]) {
    for (member, pair) in pairs.iter().enumerate() {
        let mut seqs: Vec<u64> = pair.ends[1].received.iter().map(|(_, message)| message.seq).collect();
        seqs.sort_unstable();
        assert!(seqs.into_iter().eq(0..MESSAGES), "member {member} has all of it");
    }
}

fn links(members: u64, loss: f64) -> Vec<Pair> {
    (0..members).map(|seed| Pair::new(lossy(10_000, 20, loss, seed))).collect()
}

fn replicated(members: u64, loss: f64) -> Sent {
    let mut pairs = links(members, loss);
    for pair in &mut pairs {
        for seq in 0..MESSAGES {
            pair.push(0, record(seq, pair.now, Some(LIFETIME)), payload(seq, LEN));
            pair.run_for(EVERY);
        }
        pair.run_for(LIFETIME);
    }
    check(&pairs);
    connections(&pairs)
}

fn multicast(members: u64, loss: f64) -> Sent {
    let mut stage = Stage::over(links(members, loss), 1200);
    let mut random = Random::from_seed([3; 32]);
    let lost: Vec<Vec<bool>> = (0..members)
        .map(|_| (0..PACKETS).map(|_| f64::from(random.next_u32()) < loss * f64::from(u32::MAX)).collect())
        .collect();
    let gets = |member: usize, number: u64| !lost[member][number as usize];
    for seq in 0..MESSAGES {
        stage.push(seq, LEN, LIFETIME);
        stage.run_for(EVERY, gets);
    }
    stage.run_for(LIFETIME, gets);
    check(&stage.pairs);
    let group = stage.group.stats();
    let repairs = connections(&stage.pairs);
    Sent { out: repairs.out + group.bytes_sent + HEADERS * group.packets_sent, back: repairs.back }
}

#[test]
fn a_group_costs_little_more_for_many_than_for_one() {
    println!("{MESSAGES} messages of {LEN} bytes, kB: from the sender, from all members");
    println!("{:>6} {:>8} {:>22} {:>22}", "loss", "members", "a connection to each", "a group");
    for loss in [0.0, 0.02] {
        let mut one = None;
        for members in [1, 4, 16] {
            let [each, group] = [replicated(members, loss), multicast(members, loss)];
            let column = |bytes: Sent| format!("{} + {}", bytes.out / 1000, bytes.back / 1000);
            println!("{:>5}% {members:>8} {:>22} {:>22}", loss * 100.0, column(each), column(group));
            let one = *one.get_or_insert(group.out);
            assert!(each.out > members * MESSAGES * LEN as u64);
            assert!(group.out <= one + one * (members - 1) / 10, "{members} members at a loss of {loss}");
        }
    }
}
