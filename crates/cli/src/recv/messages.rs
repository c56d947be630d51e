//! Records that come one by one, over A1.

use freshwire::a1::{Closed, ConnectionStats, JoinError, Missing};

use super::account::Account;
use super::ends::{Console, Output, WATCH};
use super::stream::Item;
use crate::a1::OpenConnection;
use crate::output::say;

/// Reads until the sender closes, or until the user ends it. `Ok(Some(..))`: what is wrong with what came.
pub(super) fn read(
    open: &OpenConnection,
    is_layered: bool,
    account: &mut Account,
    mut out: Option<&mut Output>,
    tell: &mut Console<'_>,
) -> anyhow::Result<Option<String>> {
    let connection = &open.connection;
    let (mut groups, mut is_warned) = (0, false);
    while !tell.interrupt.arrived() {
        for membership in connection.memberships().into_iter().skip(groups) {
            groups += 1;
            let address = membership.address;
            match membership.joined {
                Ok(()) => say(&format!("joined the group {address}")),
                Err(JoinError::NotWanted) => {
                    return Ok(Some(format!(
                        "the sender sends to the group {address}: add --join to get it"
                    )));
                }
                Err(error) => return Ok(Some(format!("cannot join the group {address}: {error}"))),
            }
        }
        open.turn_others_away()?;
        let received = connection.recv(WATCH);
        let now = freshwire_io::now();
        while let Some(missing) = connection.poll_missing() {
            // Messages that never started show as gaps between the numbers.
            if let Missing::Committed { .. } | Missing::OfGroup { .. } = missing
                && let Err(error) = account.item(&Item::Abandoned, now)
            {
                return Ok(Some(error.to_string()));
            }
        }
        let message = match received {
            Ok(message) => message,
            Err(Closed::Peer { code: 0, .. }) => return Ok(None),
            Err(closed) => return Ok(Some(closed.to_string())),
        };
        if let Some(message) = message {
            account.bytes(message.data.len() as u64);
            let item = match Item::of(message.data.into(), is_layered) {
                Ok(item) => item,
                Err(error) => return Ok(Some(error.to_string())),
            };
            if let Err(error) = account.item(&item, now) {
                return Ok(Some(error.to_string()));
            }
            if !out.as_mut().map_or(Ok(true), |out| out.write(item.bytes()))? {
                return Ok(None);
            }
        }
        if groups > 0 && !is_warned && connection.stats().is_some_and(|stats| is_passed_by(&stats)) {
            is_warned = true;
            say("no packet of the group arrives: all of it is sent again to this end, late. \
                 Name the network interface with --interface, here or at the sender");
        }
        tell.progress.tell(now, || account.progress());
    }
    Ok(None)
}

/// Whether what is sent to a group does not arrive here, so that it is repaired one by one.
fn is_passed_by(stats: &ConnectionStats) -> bool {
    stats.group_packets_received == 0 && stats.repairs_received >= MANY_REPAIRS
}

/// With this number of blocks, all packets before them are not lost by chance. Chosen, not measured.
const MANY_REPAIRS: u64 = 4;
