-- SPDX-License-Identifier: MIT OR Apache-2.0
-- A dissector of A1 (spec/a1.md) for Wireshark and tshark 4.0 or newer. README.md beside it says how to use it.

local folder = debug.getinfo(1, "S").source:match("^@(.*[/\\])") or ""
local streams = dofile(folder .. "a1_streams.lua")
local proto = Proto("a1", "A1 Transport")
local band, lshift, rshift = bit.band, bit.lshift, bit.rshift
local TWO_32 = 4294967296
local TWO_62 = TWO_32 * 1073741824

-- Names ---------------------------------------------------------------------------------------------------------------

local PACKETS = { [1] = "Initiation", [2] = "Retry", [3] = "Response", [4] = "Data", [5] = "Version", [6] = "Group",
    [7] = "Reset" }
local FRAMES = {
    [0x00] = "PADDING", [0x01] = "PING", [0x02] = "ACK", [0x03] = "NACK", [0x04] = "SYNC", [0x05] = "SYNC_ECHO",
    [0x10] = "GONE", [0x11] = "DROPPED", [0x12] = "CREDIT", [0x13] = "QOS", [0x14] = "QOS_ACK", [0x15] = "CLOSE",
    [0x16] = "PATH_CHALLENGE", [0x17] = "PATH_RESPONSE", [0x18] = "REPAIR",
    [0x19] = "GROUP", [0x1a] = "GROUP_NACK", [0x1b] = "GROUP_BLOCK", [0x1c] = "GROUP_GONE", [0x1d] = "WHOLE",
    [0x1e] = "GROUP_AT",
}
for kind = 0x08, 0x0e do FRAMES[kind] = "BLOCK" end
for kind = 0x20, 0x27 do FRAMES[kind] = "NEXT" end
for kind = 0x28, 0x2b do FRAMES[kind] = "RUN" end
local REASONS = {
    "expired", "predicted late", "window end", "layer shed", "superseded", "reference lost", "application",
    "abandoned", "closed", "sender lost", "holder lost", "invalid", "connection lost",
}
-- What a receiver takes any other code for.
local APPLICATION = 7
local PROTECTIONS = { [0] = "AEAD", [1] = "checksum", [2] = "none" }
local SENDERS = { [0] = "initiator", [1] = "responder" }

local SPOKEN_VERSION = 1
local MIN_INITIATION = 1200
local DATA_HEADER = 8
local MAX_COOKIE, MAX_RANGES, MAX_TEXT = 64, 32, 256
local MAX_MESSAGE, MAX_OUTSTANDING, LEAST_IN_RUN = 67108864, 65536, 16
local TAG, CHECKSUM = 16, 4

-- Fields --------------------------------------------------------------------------------------------------------------

local f = {}
local MICROSECONDS, BYTES, BITS = { " µs" }, { " byte", " bytes" }, { " bit/s" }

local function add_field(name, field) f[name] = field end
local function number(name, text, unit)
    local abbreviation = "a1." .. name
    add_field(name, unit and ProtoField.uint64(abbreviation, text, base.UNIT_STRING, unit)
        or ProtoField.uint64(abbreviation, text, base.DEC))
end
local function octets(name, text) add_field(name, ProtoField.bytes("a1." .. name, text)) end
local function frame_link(name, text) add_field(name, ProtoField.framenum("a1." .. name, text, base.NONE)) end
local function flag(name, text, mask) add_field(name, ProtoField.bool("a1." .. name, text, 8, nil, mask)) end

add_field("type", ProtoField.uint8("a1.type", "Packet type", base.DEC, PACKETS, 0xf0))
add_field("stream", ProtoField.uint32("a1.stream", "Stream index"))
add_field("sender", ProtoField.uint8("a1.sender", "Sent by", base.DEC, SENDERS))
add_field("version", ProtoField.uint32("a1.version", "Version"))
add_field("id.initiator", ProtoField.uint32("a1.id.initiator", "Initiator's connection id", base.HEX))
add_field("id.responder", ProtoField.uint32("a1.id.responder", "Responder's connection id", base.HEX))
add_field("id", ProtoField.uint32("a1.id", "Receiver's connection id", base.HEX))
octets("cookie", "Cookie")
add_field("id.forgotten", ProtoField.uint32("a1.id.forgotten", "Connection id that the sender does not know", base.HEX))
octets("reset.token", "Proof")
octets("noise.ephemeral", "Ephemeral public key")
octets("noise.static", "Static public key, encrypted")
octets("noise.payload", "Parameters, encrypted")
octets("padding", "Padding")
flag("phase", "Key phase", 0x01)
flag("retransmitted", "Retransmitted blocks only", 0x02)
flag("control", "Neither BLOCK, NEXT, RUN nor SYNC", 0x04)
flag("ack_now", "Wants an acknowledgement at once", 0x08)
add_field("number.low", ProtoField.uint24("a1.number.low", "Packet number, low 24 bits"))
number("number", "Packet number")
add_field("protection", ProtoField.uint8("a1.protection", "Protection", base.DEC, PROTECTIONS))
number("generation", "Key updates so far")
octets("sealed", "Encrypted frames")
octets("tag", "Authentication tag")
add_field("checksum", ProtoField.uint32("a1.checksum", "Checksum", base.HEX))

add_field("frame.type", ProtoField.uint8("a1.frame.type", "Frame type", base.HEX, FRAMES))
number("ack.delay", "Held by the receiver for", MICROSECONDS)
add_field("ack.time", ProtoField.uint32("a1.ack.time", "Receiver's time, low 32 bits", base.UNIT_STRING, MICROSECONDS))
number("ack.ce", "Packets with a congestion mark")
frame_link("ack.frame", "Newest acknowledged packet is in")
number("ranges.largest", "Largest packet number")
add_field("ranges.more", ProtoField.uint8("a1.ranges.more", "Further ranges"))
add_field("range", ProtoField.none("a1.range", "Range"))
number("range.first", "First packet number")
number("range.last", "Last packet number")
frame_link("nack.frame", "Missing packet is in")
number("sync.time", "Sender's time", MICROSECONDS)
number("sync_echo.time", "Time in the SYNC", MICROSECONDS)
number("sync_echo.arrived", "Answering end's time at its arrival", MICROSECONDS)
number("sync_echo.held", "Held for", MICROSECONDS)
frame_link("sync_echo.frame", "Answers the SYNC in")
add_field("sync_echo.rtt", ProtoField.relative_time("a1.sync_echo.rtt", "From the SYNC to this, without the time held"))
flag("block.first", "First of its message", 0x01)
flag("block.last", "Last of its message", 0x02)
flag("block.sized", "With a length", 0x04)
flag("next.length", "Another length", 0x01)
flag("next.later", "Another time", 0x02)
flag("next.key", "Another key", 0x04)
flag("run.sized", "With a length", 0x01)
flag("run.head", "With a head", 0x02)
add_field("run.message", ProtoField.uint24("a1.run.message", "First message's number, low 24 bits"))
add_field("run.offset", ProtoField.uint32("a1.run.offset", "Offset in the first message", base.UNIT_STRING, BYTES))
add_field("run.time", ProtoField.uint24("a1.run.time", "What begins here came into being at the sender's time, low 24 bits",
    base.UNIT_STRING, MICROSECONDS))
number("run.length", "Length of all", BYTES)
add_field("next.difference", ProtoField.int64("a1.next.difference", "Came into being that much later",
    base.UNIT_STRING, MICROSECONDS))
number("block.offset", "Offset", BYTES)
number("block.length", "Length", BYTES)
octets("block.data", "Data")
number("message", "Message number")
number("message.length", "Message length", BYTES)
number("message.seq", "Application's number")
add_field("message.ahead", ProtoField.int64("a1.message.ahead", "Larger than the message number by"))
add_field("message.layer", ProtoField.uint8("a1.message.layer", "Layer"))
number("message.group", "Group")
number("message.key", "Key")
number("message.ref", "Depends on the message that many before it")
add_field("message.generated", ProtoField.int64("a1.message.generated", "Came into being at the sender's time",
    base.UNIT_STRING, MICROSECONDS))
number("message.lifetime", "Keeps its value for", MICROSECONDS)
frame_link("message.frame", "First block is in")
add_field("reason", ProtoField.uint8("a1.reason", "Reason", base.DEC, REASONS))
number("dropped.first", "First application number")
number("dropped.count", "Messages")
number("credit.messages", "Messages that may have been begun")
number("credit.bytes", "Bytes that may have been begun", BYTES)
number("qos.serial", "Serial")
add_field("qos.priority", ProtoField.uint8("a1.qos.priority", "Priority"))
flag("qos.checksum", "Checksum", 0x01)
flag("qos.retransmission", "Retransmission", 0x02)
number("qos.send_average", "Average rate of sending (0: no limit)", BITS)
number("qos.receive_average", "Average rate of receiving (0: no limit)", BITS)
number("qos.send_burst", "Burst of sending", BYTES)
number("qos.receive_burst", "Burst of receiving", BYTES)
number("qos.max_send", "Largest message to send", BYTES)
number("qos.max_receive", "Largest message to accept", BYTES)
number("qos.outstanding", "Outstanding messages")
number("close.code", "Code")
add_field("close.text", ProtoField.string("a1.close.text", "Text", base.UNICODE))
octets("path.token", "Token")
add_field("repair.index", ProtoField.uint16("a1.repair.index", "Index of the shard"))
add_field("repair.count", ProtoField.uint16("a1.repair.count", "Shards of parity"))
octets("repair.data", "Data")
add_field("group", ProtoField.uint32("a1.group", "Group", base.HEX))
add_field("group.family", ProtoField.uint8("a1.group.family", "Family of the address"))
add_field("group.ipv4", ProtoField.ipv4("a1.group.ipv4", "Multicast address"))
add_field("group.ipv6", ProtoField.ipv6("a1.group.ipv6", "Multicast address"))
add_field("group.port", ProtoField.uint16("a1.group.port", "Port"))
octets("group.key", "Key")
number("group.next", "Next packet's number")
add_field("group.offset",
    ProtoField.int64("a1.group.offset", "Group's time minus the connection's", base.UNIT_STRING, MICROSECONDS))

proto.fields = f

local e = {
    retransmitted = ProtoExpert.new("a1.expert.retransmitted", "Retransmission", expert.group.SEQUENCE, expert.severity.NOTE),
    nack = ProtoExpert.new("a1.expert.nack", "Packets are missing", expert.group.SEQUENCE, expert.severity.NOTE),
    gone = ProtoExpert.new("a1.expert.gone", "A begun message was given up", expert.group.SEQUENCE, expert.severity.WARN),
    dropped = ProtoExpert.new("a1.expert.dropped", "Dropped before begun", expert.group.SEQUENCE, expert.severity.NOTE),
    close = ProtoExpert.new("a1.expert.close", "Normal end", expert.group.SEQUENCE, expert.severity.CHAT),
    failed = ProtoExpert.new("a1.expert.failed", "Connection failed", expert.group.SEQUENCE, expert.severity.WARN),
    update = ProtoExpert.new("a1.expert.key_update", "First packet of a key", expert.group.SECURITY, expert.severity.CHAT),
    unopened = ProtoExpert.new("a1.expert.unopened", "Does not open with the logged keys", expert.group.DECRYPTION,
        expert.severity.WARN),
    checksum = ProtoExpert.new("a1.expert.checksum", "Wrong checksum", expert.group.CHECKSUM, expert.severity.ERROR),
    malformed = ProtoExpert.new("a1.expert.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR),
}
proto.experts = e

-- Preferences ---------------------------------------------------------------------------------------------------------

proto.prefs.ports = Pref.range("UDP ports", "",
    "Ports whose datagrams are A1. A capture that begins with the handshake needs none.", 65535)
proto.prefs.keylog = Pref.string("Key log file", "",
    "The secrets of connections, as an application writes them on demand.")
proto.prefs.protection = Pref.enum("Protection", streams.AUTO,
    "Whether data packets are encrypted; packets do not say it themselves.", {
        { 1, "Automatic: by key log, else by checksum", streams.AUTO }, { 2, "AEAD", 0 }, { 3, "Not encrypted", 1 },
    }, false)

-- Reading -------------------------------------------------------------------------------------------------------------

-- What is thrown when a packet breaks off or breaks a rule; everything else that is thrown is a mistake of this script.
local function broken(text) error({ text = text }, 0) end

local SHORT = "it ends in the middle of a field"

local Reader = {}
Reader.__index = Reader

local function reader(tvb, at, last) return setmetatable({ tvb = tvb, at = at, last = last }, Reader) end

function Reader:left() return self.last - self.at end

function Reader:take(length)
    if self:left() < length then broken(SHORT) end
    local range = self.tvb(self.at, length)
    self.at = self.at + length
    return range
end

-- A field of fixed length, added to the tree.
function Reader:fixed(tree, name, length)
    local range = self:take(length)
    tree:add(f[name], range)
    return range:uint()
end

-- Bytes, added to the tree. A field may be empty.
function Reader:octets(tree, name, length)
    if length == 0 then return end
    tree:add(f[name], self:take(length))
end

-- A varint (RFC 9000, section 16): its value as Lua counts, exact up to 2^53, its range and its exact value.
function Reader:varint()
    local begin = self.at
    local first = self:take(1):uint()
    local length = lshift(1, rshift(first, 6))
    self.at = begin
    local range = self:take(length)
    if length < 8 then
        local value = range:uint() % ({ [1] = 64, [2] = 16384, [4] = 1073741824 })[length]
        return value, range, UInt64(value)
    end
    local high, low = band(range(0, 4):uint(), 0x3fffffff), range(4, 4):uint()
    return high * TWO_32 + low, range, UInt64(low, high)
end

function Reader:add_varint(tree, name)
    local value, range, exact = self:varint()
    tree:add(f[name], range, exact)
    return value
end

function Reader:add_varint32(tree, name)
    local value = self:add_varint(tree, name)
    if value >= TWO_32 then broken(name .. " is out of bounds") end
    return value
end

-- A varint whose lowest bit is the sign: 0, -1, 1, -2, 2 are written as 0, 1, 2, 3, 4.
function Reader:add_signed(tree, name)
    local _, range, exact = self:varint()
    local half = exact:rshift(1)
    local value = Int64(half:lower(), half:higher())
    if exact:lower() % 2 == 1 then value = -value - 1 end
    tree:add(f[name], range, value)
    return value
end

function Reader:message_length(tree)
    local length = self:add_varint32(tree, "message.length")
    if length > MAX_MESSAGE then broken("the message is too long") end
    return length
end

function Reader:reason(tree)
    local reason = self:fixed(tree, "reason", 1)
    if reason == 0 then broken("there is no reason 0") end
    return REASONS[reason] or ("%s (%d)"):format(REASONS[APPLICATION], reason)
end

-- Pushes each range of an ACK or NACK, the newest first, into the tree. Gives the ranges and a short text.
function Reader:ranges(tree)
    local largest = self:add_varint(tree, "ranges.largest")
    local more = self:fixed(tree, "ranges.more", 1)
    if more >= MAX_RANGES then broken("there are too many ranges") end
    local ranges, text, last = {}, {}, largest
    for turn = 0, more do
        local begin = self.at
        if turn > 0 then last = last - self:varint() - 2 end
        local first = last - self:varint()
        if last < 0 or first < 0 then broken("a range goes below 0") end
        local range = self.tvb(begin, self.at - begin)
        local words = first == last and ("%.0f"):format(first) or ("%.0f-%.0f"):format(first, last)
        local branch = tree:add(f.range, range):set_text("Range: " .. words)
        branch:add(f["range.first"], range, UInt64(first % TWO_32, math.floor(first / TWO_32))):set_generated()
        branch:add(f["range.last"], range, UInt64(last % TWO_32, math.floor(last / TWO_32))):set_generated()
        ranges[#ranges + 1] = { first = first, last = last }
        text[#text + 1] = words
        last = first
    end
    return ranges, table.concat(text, ",")
end

local function add_quality(r, tree)
    r:fixed(tree, "qos.priority", 1)
    local flags = r:take(1)
    tree:add(f["qos.checksum"], flags)
    tree:add(f["qos.retransmission"], flags)
    r:add_varint(tree, "qos.send_average")
    r:add_varint(tree, "qos.receive_average")
    r:add_varint32(tree, "qos.send_burst")
    r:add_varint32(tree, "qos.receive_burst")
    local to_send = r:add_varint32(tree, "qos.max_send")
    local to_accept = r:add_varint32(tree, "qos.max_receive")
    if math.max(to_send, to_accept) > MAX_MESSAGE then broken("the largest message is out of bounds") end
    local outstanding = r:add_varint32(tree, "qos.outstanding")
    if outstanding < 1 or outstanding > MAX_OUTSTANDING then broken("too few or too many outstanding messages") end
end

-- Whether it is UTF-8 as RFC 3629 has it.
local function is_utf8(text)
    local at = 1
    while at <= #text do
        local a, b = text:byte(at, at + 1)
        local more = a < 0x80 and 0 or a >= 0xc2 and a <= 0xdf and 1 or a >= 0xe0 and a <= 0xef and 2
            or a >= 0xf0 and a <= 0xf4 and 3
        local lowest = a == 0xe0 and 0xa0 or a == 0xf0 and 0x90 or 0x80
        local highest = a == 0xed and 0x9f or a == 0xf4 and 0x8f or 0xbf
        if not more or #text < at + more or more > 0 and (b < lowest or b > highest) then return false end
        if text:sub(at + 2, at + more):find("[^\128-\191]") then return false end
        at = at + more + 1
    end
    return true
end

-- Frames --------------------------------------------------------------------------------------------------------------

-- Each reads a frame behind its type into the tree and gives a text for the list of packets. `c` is the packet: `side` of
-- its sender, `peer` of its receiver, and `is_new` the first time that it is seen.
local read = {}

read[0x01] = function() return "" end

read[0x02] = function(r, tree, c)
    r:add_varint(tree, "ack.delay")
    r:fixed(tree, "ack.time", 4)
    r:add_varint(tree, "ack.ce")
    local ranges, text = r:ranges(tree)
    local newest = c.peer.frames[ranges[1].last]
    if newest then tree:add(f["ack.frame"], newest):set_generated() end
    return text
end

local function read_missing(r, tree, frames)
    local ranges, text = r:ranges(tree)
    local links = 0
    for _, range in ipairs(ranges) do
        local missing = range.first
        while missing <= range.last and links < MAX_RANGES do
            local frame = frames[missing]
            if frame then tree:add(f["nack.frame"], frame):set_generated() end
            missing, links = missing + 1, links + 1
        end
    end
    tree:add_proto_expert_info(e.nack, "Missing: " .. text)
    return text
end

read[0x03] = function(r, tree, c) return read_missing(r, tree, c.peer.frames) end

read[0x04] = function(r, tree, c)
    local time = r:add_varint(tree, "sync.time")
    if c.is_new then c.side.syncs[time] = { frame = c.frame, at = c.at } end
    return ""
end

read[0x05] = function(r, tree, c)
    local time = r:add_varint(tree, "sync_echo.time")
    r:add_varint(tree, "sync_echo.arrived")
    local held = r:add_varint(tree, "sync_echo.held")
    local sync = c.peer.syncs[time]
    if not sync or c.at < sync.at then return "" end
    tree:add(f["sync_echo.frame"], sync.frame):set_generated()
    local rtt = c.at - sync.at - held / 1e6
    local seconds = math.floor(rtt)
    tree:add(f["sync_echo.rtt"], NSTime(seconds, math.min(math.floor((rtt - seconds) * 1e9 + 0.5), 999999999))):set_generated()
    return ("rtt %.1f ms"):format(rtt * 1e3)
end

-- Adds a number as the user would count it; it is exact up to 2^53.
local function add_generated(tree, name, value)
    tree:add(f[name], UInt64(value % TWO_32, math.floor(value / TWO_32))):set_generated()
end

-- What the flags do not name is as usual: nothing, or for ever.
local function read_message_head(r, tree, id, is_run)
    local flags_at = r.at
    local flags = r:take(1):uint()
    local function has(flag) return band(flags, flag) ~= 0 end
    local length = r:message_length(tree)
    if has(0x02) then
        r:fixed(tree, "message.layer", 1)
    else
        tree:add(f["message.layer"], 0):set_generated()
    end
    local ahead = has(0x01) and r:add_signed(tree, "message.ahead"):tonumber() or 0
    local seq = (id + ahead) % TWO_62
    add_generated(tree, "message.seq", seq)
    if has(0x04) then r:add_varint32(tree, "message.group") end
    if has(0x08) then r:add_varint(tree, "message.key") end
    if has(0x10) then r:add_varint32(tree, "message.ref") end
    if has(0x20) then r:add_varint32(tree, "message.ref") end
    local generated = Int64(0)
    if is_run then
        if has(0x40) then broken("the time of a run is not in its head") end
    elseif has(0x40) then
        generated = r:add_signed(tree, "message.generated")
    else
        tree:add(f["message.generated"], generated):set_generated()
    end
    if has(0x80) then
        r:add_varint(tree, "message.lifetime")
    else
        tree:add(r.tvb(flags_at, 1), "Keeps its value for ever"):set_generated()
    end
    return length, seq, generated
end

local function read_block(kind, r, tree, c)
    local bits = r.tvb(r.at - 1, 1)
    for _, name in ipairs({ "block.first", "block.last", "block.sized" }) do tree:add(f[name], bits) end
    local id = r:add_varint(tree, "message")
    local messages, limit, offset = c.side.messages, MAX_MESSAGE, 0
    if c.is_new then streams.meet_message(c.side, id) end
    if band(kind, 1) ~= 0 then
        local seq, generated
        limit, seq, generated = read_message_head(r, tree, id)
        if c.is_new then messages[id] = messages[id] or { frame = c.frame, seq = seq } end
        c.like = { id = id, length = limit, seq = seq, generated = generated }
    else
        offset = r:add_varint32(tree, "block.offset")
        local known = messages[id]
        if known then
            add_generated(tree, "message.seq", known.seq)
            tree:add(f["message.frame"], known.frame):set_generated()
        end
    end
    local length, is_whole = r:left(), band(kind, 3) == 3
    if band(kind, 4) ~= 0 then
        length = r:add_varint32(tree, "block.length")
    else
        if is_whole then length = limit end
        tree:add(f["block.length"], UInt64(length)):set_generated()
    end
    r:octets(tree, "block.data", length)
    local reach = offset + length
    if reach > limit then broken("the block goes beyond its message") end
    return ("%.0f%s %.0f+%.0f%s"):format(id, band(kind, 1) ~= 0 and " first" or "", offset, length,
        band(kind, 2) ~= 0 and " last" or "")
end

for kind = 0x08, 0x0e do
    read[kind] = function(...) return read_block(kind, ...) end
end

-- A whole message whose head is like that of the block before it.
local function read_next(kind, r, tree, c, like)
    local bits = r.tvb(r.at - 1, 1)
    for _, name in ipairs({ "next.length", "next.later", "next.key" }) do tree:add(f[name], bits) end
    local length = band(kind, 1) ~= 0 and r:message_length(tree) or nil
    local later = band(kind, 2) ~= 0 and r:add_signed(tree, "next.difference") or Int64(0)
    if band(kind, 4) ~= 0 then r:add_varint(tree, "message.key") end
    if not like then broken("it is like no message") end
    local now = { id = like.id + 1, length = length or like.length, seq = like.seq + 1, generated = like.generated + later }
    add_generated(tree, "message", now.id)
    add_generated(tree, "message.seq", now.seq)
    tree:add(f["message.generated"], now.generated):set_generated()
    if not length then add_generated(tree, "message.length", now.length) end
    r:octets(tree, "block.data", now.length)
    if c.is_new then
        streams.meet_message(c.side, now.id)
        c.side.messages[now.id] = c.side.messages[now.id] or { frame = c.frame, seq = now.seq }
    end
    c.like = now
    return ("%.0f first 0+%.0f last"):format(now.id, now.length)
end

for kind = 0x20, 0x27 do
    read[kind] = function(...) return read_next(kind, ...) end
end

-- The part of a message in a run that begins at `offset` in it.
local function read_run_part(r, tree, c, message, offset)
    local length = math.min(message.length - offset, r.run_last - r.at)
    local data = r.tvb(r.at, length)
    local branch = tree:add(f["block.data"], data)
    branch:add(f.message, data, UInt64(message.id % TWO_32, math.floor(message.id / TWO_32))):set_generated()
    branch:add(f["message.seq"], data, UInt64(message.seq % TWO_32, math.floor(message.seq / TWO_32))):set_generated()
    r.at = r.at + length
    local known = c.side.messages
    if c.is_new then
        streams.meet_message(c.side, message.id)
        if offset == 0 then known[message.id] = known[message.id] or { frame = c.frame, seq = message.seq } end
    end
    if offset > 0 and known[message.id] then
        branch:add(f["message.frame"], known[message.id].frame):set_generated()
    end
    return ("%.0f%s %.0f+%.0f%s"):format(message.id, offset == 0 and " first" or "", offset, length,
        offset + length == message.length and " last" or "")
end

-- Messages that are alike, one behind the other.
local function read_run(kind, r, tree, c)
    local bits = r.tvb(r.at - 1, 1)
    for _, name in ipairs({ "run.sized", "run.head" }) do tree:add(f[name], bits) end
    local begin = r.at
    local low = r:fixed(tree, "run.message", 3)
    -- What the number is depends on what was sent before.
    c.runs = c.runs or {}
    c.runs[begin] = c.runs[begin] or streams.full_message(c.side, low)
    local message = { id = c.runs[begin] }
    message.seq = message.id
    if band(kind, 2) ~= 0 then
        message.length, message.seq = read_message_head(r, tree, message.id, true)
    else
        message.length = r:message_length(tree)
    end
    local offset = r:fixed(tree, "run.offset", message.length <= 256 and 1 or message.length <= 65536 and 2 or 4)
    r:fixed(tree, "run.time", 3)
    if message.length < LEAST_IN_RUN or offset >= message.length then broken("the length of a message in a run is out of bounds") end
    local length = band(kind, 1) ~= 0 and r:add_varint32(tree, "run.length") or r:left()
    if length > r:left() then broken(SHORT) end
    if length == 0 then broken("the run is empty") end
    r.run_last = r.at + length
    local texts = {}
    while r.at < r.run_last do
        texts[#texts + 1] = read_run_part(r, tree, c, message, offset)
        message.id, message.seq, offset = message.id + 1, (message.seq + 1) % TWO_62, 0
    end
    return #texts > 2 and ("%s .. %s"):format(texts[1], texts[#texts]) or table.concat(texts, ", ")
end

for kind = 0x28, 0x2b do
    read[kind] = function(...) return read_run(kind, ...) end
end

read[0x10] = function(r, tree)
    local id = r:add_varint(tree, "message")
    r:message_length(tree)
    local reason = r:reason(tree)
    tree:add_proto_expert_info(e.gone, ("Message %.0f was given up: %s"):format(id, reason))
    return ("%.0f %s"):format(id, reason)
end

read[0x11] = function(r, tree)
    local first = r:add_varint(tree, "dropped.first")
    local count = r:add_varint(tree, "dropped.count")
    local reason = r:reason(tree)
    tree:add_proto_expert_info(e.dropped, ("%.0f from %.0f on dropped before they were begun: %s"):format(count, first, reason))
    return ("%.0f+%.0f %s"):format(first, count, reason)
end

read[0x12] = function(r, tree)
    local messages = r:add_varint(tree, "credit.messages")
    return ("%.0f, %.0f bytes"):format(messages, r:add_varint(tree, "credit.bytes"))
end

read[0x13] = function(r, tree)
    local serial = r:add_varint(tree, "qos.serial")
    add_quality(r, tree)
    return ("%.0f"):format(serial)
end
read[0x14] = read[0x13]

read[0x15] = function(r, tree)
    local code = r:add_varint(tree, "close.code")
    local length = r:varint()
    if length > MAX_TEXT then broken("the text is too long") end
    local text = ""
    if length > 0 then
        local range = r:take(length)
        if not is_utf8(range:raw()) then broken("the text is not UTF-8") end
        tree:add_packet_field(f["close.text"], range, ENC_UTF_8)
        text = range:string(ENC_UTF_8)
    end
    local words = ("%.0f %s"):format(code, text)
    tree:add_proto_expert_info(code == 0 and e.close or e.failed, "Closed: " .. words)
    return words
end

read[0x16] = function(r, tree)
    r:octets(tree, "path.token", 8)
    return ""
end
read[0x17] = read[0x16]

read[0x18] = function(r, tree)
    local id = r:add_varint(tree, "message")
    read_message_head(r, tree, id)
    local index = r:fixed(tree, "repair.index", 2)
    local count = r:fixed(tree, "repair.count", 2)
    r:octets(tree, "repair.data", r:left())
    return ("%.0f %d/%d"):format(id, index, count)
end

read[0x19] = function(r, tree, c)
    local id = r:fixed(tree, "group", 4)
    local family = r:fixed(tree, "group.family", 1)
    if family ~= 4 and family ~= 6 then broken("the family of the address is unknown") end
    r:octets(tree, "group.ipv" .. family, family == 4 and 4 or 16)
    r:fixed(tree, "group.port", 2)
    local key = r:take(32)
    tree:add(f["group.key"], key)
    local following = r:add_varint(tree, "group.next")
    r:octets(tree, "group.offset", 8)
    if c.is_new then streams.meet_group(id, key:raw(), following) end
    return ("0x%08x"):format(id)
end

read[0x1a] = function(r, tree)
    local id = r:fixed(tree, "group", 4)
    return ("0x%08x %s"):format(id, read_missing(r, tree, streams.group(id).frames))
end

read[0x1b] = function(r, tree, c)
    local id = r:fixed(tree, "group", 4)
    local kind = r:take(1):uint()
    if FRAMES[kind] ~= "BLOCK" then broken("it holds no BLOCK") end
    local packet = { side = streams.group(id), is_new = c.is_new, frame = c.frame }
    return ("0x%08x "):format(id) .. read_block(kind, r, tree, packet)
end

read[0x1c] = function(r, tree)
    local id = r:fixed(tree, "group", 4)
    local message = r:add_varint(tree, "message")
    local reason = r:reason(tree)
    tree:add_proto_expert_info(e.gone, ("Message %.0f of the group is not repaired: %s"):format(message, reason))
    return ("0x%08x %.0f %s"):format(id, message, reason)
end

read[0x1d] = function(r, tree)
    return ("%.0f"):format(r:add_varint(tree, "message"))
end

read[0x1e] = function(r, tree)
    local id = r:fixed(tree, "group", 4)
    return ("0x%08x %.0f"):format(id, r:add_varint(tree, "group.next"))
end

-- Paddings in a row are one branch.
local function skip_padding(r)
    while r:left() > 0 and r.tvb(r.at, 1):uint() == 0 do r.at = r.at + 1 end
end

local function dissect_frame(r, tree, c)
    local begin = r.at
    local kind = r:take(1):uint()
    local name = FRAMES[kind]
    local like = c.like
    c.like = nil
    local branch = tree:add(proto, r.tvb(begin), name or "Unknown frame")
    branch:add(f["frame.type"], r.tvb(begin, 1))
    if not name then broken(("frame type 0x%02x is unknown"):format(kind)) end
    local text = ""
    if kind == 0 then
        skip_padding(r)
        text = ("%d"):format(r.at - begin)
    else
        text = read[kind](r, branch, c, like)
    end
    branch:set_len(r.at - begin)
    branch:append_text(text == "" and "" or ": " .. text)
    return text == "" and name or name .. " " .. text
end

local CUT = "[cut by the capture]"

-- Reads what it can, and says where it breaks off.
local function guarded(tree, is_cut, action)
    local ok, problem = pcall(action)
    if ok then return nil end
    if type(problem) ~= "table" then error(problem, 0) end
    if is_cut then return CUT end
    tree:add_proto_expert_info(e.malformed, "Malformed: " .. problem.text)
    return "[Malformed: " .. problem.text .. "]"
end

local function dissect_frames(tvb, at, last, tree, c)
    local r, texts = reader(tvb, at, last), {}
    c.like = nil
    local problem = guarded(tree, false, function()
        while r:left() > 0 do texts[#texts + 1] = dissect_frame(r, tree, c) end
    end)
    texts[#texts + 1] = problem
    return table.concat(texts, "; ")
end

-- Packets -------------------------------------------------------------------------------------------------------------

local function add_stream(tree, stream, sender)
    tree:add(f.stream, stream.index):set_generated()
    tree:add(f.sender, sender):set_generated()
    for side, name in pairs({ [0] = "id.initiator", [1] = "id.responder" }) do
        if stream.ids[side] then tree:add(f[name], stream.ids[side]):set_generated() end
    end
end

local function add_noise(r, tree, has_static)
    local length = r:take(2):uint()
    if length == 0 then return false end
    local last = r.at + length
    r:octets(tree, "noise.ephemeral", 32)
    if has_static then r:octets(tree, "noise.static", 48) end
    if last < r.at then broken("the handshake message is too short") end
    r:octets(tree, "noise.payload", last - r.at)
    return true
end

local function add_cookie(r, tree)
    local length = r:take(1):uint()
    if length > MAX_COOKIE then broken("the cookie is too long") end
    r:octets(tree, "cookie", length)
    return length > 0
end

-- Each reads a packet behind its first byte; `packet` keeps the stream from the first time on.
local handshake = {}

handshake[1] = function(r, tree, pinfo, packet)
    if r.last < MIN_INITIATION and not packet.is_cut then broken("an initiation has at least 1200 bytes") end
    r:fixed(tree, "version", 4)
    local id = r:fixed(tree, "id.initiator", 4)
    packet.stream = packet.stream or streams.stream_of_initiation(pinfo, id)
    packet.sender = 0
    pinfo.conversation = proto
    local has_cookie = add_cookie(r, tree)
    add_noise(r, tree, true)
    r:octets(tree, "padding", r:left())
    return ("0x%08x%s"):format(id, has_cookie and ", cookie" or "")
end

handshake[2] = function(r, tree, pinfo, packet)
    local to = r:fixed(tree, "id.initiator", 4)
    packet.sender = 1
    packet.stream = packet.stream or (streams.receiver_of(pinfo, to) or {}).stream
    add_cookie(r, tree)
    return ("to 0x%08x, cookie"):format(to)
end

handshake[3] = function(r, tree, pinfo, packet)
    local to = r:fixed(tree, "id.initiator", 4)
    local from = r:fixed(tree, "id.responder", 4)
    packet.sender = 1
    if not packet.stream then
        local known = streams.receiver_of(pinfo, to)
        packet.stream = known and known.stream
        if packet.stream then streams.name_end(packet.stream, 1, from, pinfo.src, pinfo.src_port) end
    end
    add_noise(r, tree, false)
    return ("0x%08x to 0x%08x"):format(from, to)
end

handshake[5] = function(r, tree, pinfo, packet)
    local to = r:fixed(tree, "id.initiator", 4)
    packet.sender = 1
    packet.stream = packet.stream or (streams.receiver_of(pinfo, to) or {}).stream
    return ("to 0x%08x, version %d"):format(to, r:fixed(tree, "version", 4))
end

-- The id is the sender's own, as in the packet that it answers.
handshake[7] = function(r, tree, pinfo, packet)
    local id = r:fixed(tree, "id.forgotten", 4)
    local known = streams.receiver_of(pinfo, id)
    if known then packet.stream, packet.sender = packet.stream or known.stream, known.owner end
    r:octets(tree, "reset.token", 16)
    tree:add_proto_expert_info(e.failed, "The sender does not know the connection any more")
    return ("0x%08x"):format(id)
end

local function dissect_handshake(kind, tvb, tree, pinfo, packet)
    local r, text = reader(tvb, 1, tvb:len()), ""
    local problem = guarded(tree, packet.is_cut, function() text = handshake[kind](r, tree, pinfo, packet) end)
    if packet.stream then add_stream(tree, packet.stream, packet.sender) end
    return problem or text
end

local function dissect_protected(tvb, tree, packet)
    if packet.is_cut then return CUT end
    local last = tvb:len()
    if packet.protection then tree:add(f.protection, packet.protection):set_generated() end
    if packet.protection == 2 then return dissect_frames(tvb, DATA_HEADER, last, tree, packet) end
    if packet.protection == 1 then
        local at = math.max(last - CHECKSUM, DATA_HEADER)
        if at < last then tree:add(f.checksum, tvb(at)) end
        if not packet.is_intact then
            tree:add_proto_expert_info(e.checksum)
            return "[wrong checksum]"
        end
        return dissect_frames(tvb, DATA_HEADER, at, tree, packet)
    end
    local at = math.max(last - TAG, DATA_HEADER)
    if at > DATA_HEADER then tree:add(f.sealed, tvb(DATA_HEADER, at - DATA_HEADER)) end
    if at < last then tree:add(f.tag, tvb(at)) end
    if not packet.plain then
        if packet.has_key then tree:add_proto_expert_info(e.unopened) end
        return ("encrypted, %d bytes"):format(last - DATA_HEADER)
    end
    tree:add(f.generation, UInt64(packet.generation)):set_generated()
    if packet.is_update then tree:add_proto_expert_info(e.update) end
    if packet.plain == "" then return "" end
    local opened = ByteArray.new(packet.plain, true):tvb("Opened A1 packet")
    return dissect_frames(opened, 0, opened:len(), tree, packet)
end

-- What is behind the header; nil if not all of it was captured.
local function sealed_of(tvb, packet)
    if packet.is_cut then return nil end
    return tvb:len() > DATA_HEADER and tvb:raw(DATA_HEADER) or ""
end

local function dissect_data(tvb, tree, pinfo, packet)
    if tvb:len() < DATA_HEADER then return guarded(tree, packet.is_cut, function() broken(SHORT) end) end
    local first = tvb(0, 1)
    local bits = first:uint()
    for _, name in ipairs({ "phase", "retransmitted", "control", "ack_now" }) do tree:add(f[name], first) end
    tree:add(f.id, tvb(1, 4))
    tree:add(f["number.low"], tvb(5, 3))
    packet.is_new = not packet.stream
    if packet.is_new then
        local header = { to = tvb(1, 4):uint(), low = tvb(5, 3):uint(), phase = band(bits, 1) }
        local sealed = sealed_of(tvb, packet)
        streams.meet_data(pinfo, packet, header, sealed, proto.prefs.protection)
    end
    add_stream(tree, packet.stream, packet.sender)
    local exact = UInt64(packet.number % TWO_32, math.floor(packet.number / TWO_32))
    tree:add(f.number, tvb(5, 3), exact):set_generated()
    local marks = (band(bits, 2) ~= 0 and " again" or "") .. (band(bits, 4) ~= 0 and " control" or "")
        .. (band(bits, 8) ~= 0 and " ack-now" or "")
    if band(bits, 2) ~= 0 then tree:add_proto_expert_info(e.retransmitted, "All its blocks were sent before") end
    return ("%s %.0f%s: "):format(packet.sender == 0 and "->" or "<-", packet.number, marks)
        .. dissect_protected(tvb, tree, packet)
end

local function dissect_group(tvb, tree, pinfo, packet)
    if tvb:len() < DATA_HEADER then return guarded(tree, packet.is_cut, function() broken(SHORT) end) end
    local id = tvb(1, 4):uint()
    tree:add(f.group, tvb(1, 4))
    tree:add(f["number.low"], tvb(5, 3))
    packet.is_new = not packet.side
    if packet.is_new then
        streams.meet_group_data(packet, pinfo, id, tvb(5, 3):uint(), sealed_of(tvb, packet))
    end
    return ("0x%08x %.0f: "):format(id, packet.number) .. dissect_protected(tvb, tree, packet)
end

local function dissect_packet(tvb, pinfo, tree, packet)
    local branch = tree:add(proto, tvb())
    branch:add(f.type, tvb(0, 1))
    local kind = rshift(tvb(0, 1):uint(), 4)
    local name, text = PACKETS[kind], ""
    if kind == 4 then
        text = dissect_data(tvb, branch, pinfo, packet)
    elseif kind == 6 then
        text = dissect_group(tvb, branch, pinfo, packet)
    elseif name then
        text = dissect_handshake(kind, tvb, branch, pinfo, packet)
    else
        name = "[unknown packet]"
        branch:add_proto_expert_info(e.malformed, "Malformed: packet type " .. kind .. " is unknown")
    end
    branch:append_text(", " .. name)
    return name .. " " .. text
end

-- What was found out about the packets of each frame, by their places in it.
local packets = {}

-- The length of the first packet. A capture on the sending machine, and on one that receives in bulk, shows packets that the
-- network card cuts apart as one datagram: the next begins where the header with the next number stands.
local function first_length(tvb)
    if tvb:len() < 2 * DATA_HEADER then return tvb:len() end
    local kind = rshift(tvb(0, 1):uint(), 4)
    if kind ~= 4 and kind ~= 6 then return tvb:len() end
    local following = tvb(1, 4):raw() .. Struct.pack(">I4", (tvb(5, 3):uint() + 1) % 16777216):sub(2)
    local found = tvb:raw():find(following, DATA_HEADER + 2, true)
    if found and rshift(tvb(found - 2, 1):uint(), 4) == kind then return found - 2 end
    return tvb:len()
end

function proto.dissector(tvb, pinfo, tree)
    if tvb:len() == 0 then return 0 end
    pinfo.cols.protocol = "A1"
    packets[pinfo.number] = packets[pinfo.number] or {}
    local at, length, texts = 0, first_length(tvb), {}
    while at < tvb:len() do
        local part = tvb(at, math.min(length, tvb:len() - at)):tvb()
        local kept = packets[pinfo.number]
        kept[at] = kept[at] or { is_cut = at + length >= tvb:len() and tvb:reported_len() > tvb:len() }
        texts[#texts + 1] = dissect_packet(part, pinfo, tree, kept[at])
        at = at + length
    end
    pinfo.cols.info = table.concat(texts, " | ")
    return tvb:len()
end

-- Finding it ----------------------------------------------------------------------------------------------------------

function proto.init()
    packets = {}
    streams.forget()
    streams.read_key_log(proto.prefs.keylog)
end

local table_of_ports = DissectorTable.get("udp.port")
table_of_ports:add_for_decode_as(proto)
local ports = ""

function proto.prefs_changed()
    if ports ~= proto.prefs.ports then
        if ports ~= "" then table_of_ports:remove(ports, proto) end
        ports = proto.prefs.ports
        if ports ~= "" then table_of_ports:add(ports, proto) end
    end
    streams.read_key_log(proto.prefs.keylog)
end

-- An initiation has a version and a length; what follows it belongs to the same conversation, or to an id or group that was
-- met in it.
local function looks_like_a1(tvb, pinfo)
    if tvb:len() <= DATA_HEADER then return false end
    local first, id = tvb(0, 1):uint(), tvb(1, 4):uint()
    if first == 0x10 then
        return tvb:len() > 9 and tvb:reported_len() >= MIN_INITIATION and id == SPOKEN_VERSION
            and tvb(9, 1):uint() <= MAX_COOKIE
    end
    local kind = rshift(first, 4)
    return (kind == 4 or kind == 7) and streams.receiver_of(pinfo, id) ~= nil or kind == 6 and streams.has_group(id)
end

proto:register_heuristic("udp", function(tvb, pinfo, tree)
    if not looks_like_a1(tvb, pinfo) then return false end
    proto.dissector(tvb, pinfo, tree)
    return true
end)
