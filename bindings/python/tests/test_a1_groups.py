"""A1: one stream to many by IP multicast, on the loopback interface."""

import os
import socket

import pytest
from conftest import TIMEOUT, fates_of, until

import freshwire
from freshwire import a1, choice

GROUP = "239.255.78.1"


def multicast_error():
    """Say why this machine does not bring a multicast packet from itself to itself; None if it does."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as member:
            member.bind((GROUP, 0))
            request = socket.inet_aton(GROUP) + socket.inet_aton("127.0.0.1")
            member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
            member.settimeout(1)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.bind(("127.0.0.1", 0))
                sender.sendto(b"x", member.getsockname())
            member.recv(1)
    except OSError as error:
        return str(error)
    return None


@pytest.fixture(scope="module", autouse=True)
def multicast():
    error = multicast_error()
    if error:
        assert "CI" not in os.environ, f"IP multicast on loopback is needed in CI: {error}"
        pytest.skip(f"no IP multicast on this machine's loopback: {error}")


def address(last):
    """Return a group of this test's own, with a free port."""
    group = f"239.255.78.{last}"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind((group, 0))
        return f"{group}:{found.getsockname()[1]}"


def invited(node, group, **options):
    """Make a member: its node, the sender's end and the member's end."""
    member = a1.Node("127.0.0.1:0", **options)
    to = node.connect(*member.address, member.public_key, timeout=TIMEOUT)
    at = member.accept(TIMEOUT)
    group.invite(to)
    return member, to, at


def membership(at):
    """Return what became of the invitation."""
    (found,) = until(at.memberships, "an invitation")
    return found


def test_one_push_reaches_every_member_and_repairs_who_loses():
    with a1.Node("127.0.0.1:0") as node:
        group = node.group(address(2), 1_000_000_000, repair_for=5.0)
        ring = freshwire.Ring(slots=1024, block_bytes=4096, blocks=2048)
        sink = freshwire.Sender(ring=ring).add_a1_group(group, choice.expiring())
        good = invited(node, group, join=a1.Join())
        # Its kernel keeps one or two packets: a burst is more than that.
        losing = invited(node, group, join=a1.Join(), receive_buffer=1)
        unwilling = invited(node, group)
        assert membership(good[2]).joined
        assert membership(losing[2]).joined
        declined = membership(unwilling[2])
        assert (declined.joined, declined.reason) == (False, "the node joins no groups")
        assert "{}:{}".format(*declined.address) == "{}:{}".format(*group.address)
        assert declined.group == group.id
        rounds = 0
        while losing[1].stats().repairs_sent == 0:
            rounds += 1
            assert rounds <= 20, "no burst was lost"
            pushed = {}
            for number in range(40):
                payload = f"{rounds} {number} ".encode() * 100
                pushed[sink.push(payload)] = payload
            for _, _, at in (good, losing):
                messages = [at.recv(TIMEOUT) for _ in pushed]
                assert {message.seq: message.payload for message in messages} == pushed
                assert not any(message.late for message in messages)
        assert good[1].stats().repairs_sent == 0
        assert good[2].stats().group_packets_received > 0
        assert losing[2].stats().repairs_received > 0
        stats = group.stats()
        assert (stats.members, stats.packets_refused) == (3, 0)
        assert unwilling[2].recv(0) is None
        good[1].close()
        until(lambda: group.stats().members == 2, "a member leaves with its connection")
        with pytest.raises(freshwire.Closed):
            group.invite(good[1])
        for member, *_ in (good, losing, unwilling):
            member.close()
    assert group.stats() is None
    assert until(lambda: sink.ended, "the end").cause == freshwire.Cause.Stopped


def test_a_record_is_acknowledged_when_it_can_be_repaired_no_more():
    with a1.Node("127.0.0.1:0") as node:
        group = node.group(address(3), 1_000_000_000, repair_for=0.2)
        sink = freshwire.Sender().add_a1_group(group, choice.expiring())
        member, _, at = invited(node, group, join=a1.Join())
        with member:
            assert membership(at).joined
            seq = sink.push(b"position", key=7)
            message = at.recv(TIMEOUT)
            assert (message.seq, message.key, message.payload) == (seq, 7, b"position")
            fate = fates_of(sink, 1)[seq]
            assert fate.outcome == freshwire.Outcome.Acked
            assert fate.acked_at - fate.committed_at >= 200_000_000
            assert sink.close() == freshwire.Ended.Closed()
            assert at.closed is None


def test_a_connection_of_another_node_is_no_member():
    with a1.Node("127.0.0.1:0") as node, a1.Node("127.0.0.1:0") as other, a1.Node("127.0.0.1:0") as far:
        group = node.group(address(4), 1_000_000)
        connection = other.connect(*far.address, far.public_key, timeout=TIMEOUT)
        with pytest.raises(freshwire.FreshwireError, match="another node"):
            group.invite(connection)
        with pytest.raises(TypeError, match="Connection"):
            group.invite("239.255.78.4")
