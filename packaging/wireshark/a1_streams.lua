-- SPDX-License-Identifier: MIT OR Apache-2.0
-- What is known of A1's connections while a capture is gone through. A library of a1.lua; loaded by itself it does nothing.

local folder = debug.getinfo(1, "S").source:match("^@(.*[/\\])") or ""
local crypto = dofile(folder .. "a1_crypto.lua")
local TWO_24 = 16777216
local CHECKSUM = 4

-- Of the preference for the protection: to be found out. The other values are those of the protocol.
local AUTO = 3

-- A stream: index, ids and sides, both by sender: 0 for the initiator, 1 for the responder. A side knows of the packets
-- that its end sent.
local streams, by_end, by_id, by_pair, groups, secrets = {}, {}, {}, {}, {}, {}
local key_log = ""

local function new_side() return { largest = -1, frames = {}, syncs = {}, messages = {}, next_message = 0 } end

local function new_stream()
    local stream = { index = #streams, ids = {}, sides = { [0] = new_side(), [1] = new_side() }, misses = 0 }
    streams[#streams + 1] = stream
    return stream
end

-- Secrets by the id of the end that receives with them. A line that is not understood is left out.
local function read_key_log(path)
    secrets, key_log = {}, path
    local file = path ~= "" and io.open(path, "r")
    if not file then return end
    for line in file:lines() do
        local initiator, responder, sender, generation, secret =
            line:match("^A1 (%x+) (%x+) ([IR]) (%d+) (%x+)%s*$")
        if secret and #secret == 64 then
            local to = tonumber(sender == "I" and responder or initiator, 16)
            local bytes = secret:gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end)
            secrets[to] = secrets[to] or {}
            table.insert(secrets[to], { generation = tonumber(generation), bytes = bytes })
        end
    end
    file:close()
end

local function forget() streams, by_end, by_id, by_pair, groups = {}, {}, {}, {}, {} end

local function end_of(address, port, id) return tostring(address) .. " " .. port .. " " .. id end

local function name_end(stream, sender, id, address, port)
    stream.ids[sender] = id
    local owner = { stream = stream, owner = sender }
    by_end[end_of(address, port, id)], by_id[id] = owner, owner
end

-- The stream that an initiation belongs to; one that is repeated, or has a cookie now, begins none.
local function stream_of_initiation(pinfo, id)
    local known = by_end[end_of(pinfo.src, pinfo.src_port, id)]
    if known and known.owner == 0 then return known.stream end
    local stream = new_stream()
    name_end(stream, 0, id, pinfo.src, pinfo.src_port)
    return stream
end

-- For who came too late for the handshake: the first packet seen is the initiator's, and the other direction belongs to
-- the last stream between the same two sockets.
local function guess_stream(pinfo, to)
    local here, there = tostring(pinfo.src) .. " " .. pinfo.src_port, tostring(pinfo.dst) .. " " .. pinfo.dst_port
    local pair = here < there and here .. " " .. there or there .. " " .. here
    local last = by_pair[pair]
    local stream, owner = nil, 1
    if last and last.from ~= here and not last.stream.ids[0] then
        stream, owner = last.stream, 0
    else
        stream = new_stream()
        by_pair[pair] = { stream = stream, from = here }
    end
    name_end(stream, owner, to, pinfo.dst, pinfo.dst_port)
    return stream, owner
end

-- By address, port and id; by the id alone, which 32 random bits tell apart, after an address has changed.
local function receiver_of(pinfo, to) return by_end[end_of(pinfo.dst, pinfo.dst_port, to)] or by_id[to] end

-- The number nearest to the expected one that has these low 24 bits.
local function full_number(expected, low)
    local full = expected - expected % TWO_24 + low
    if full > expected + TWO_24 / 2 and full >= TWO_24 then
        full = full - TWO_24
    elseif full < expected - TWO_24 / 2 then
        full = full + TWO_24
    end
    return full
end

-- What is above the low 24 bits of the first packet that was captured, at most.
local MAX_UPPER = 2

-- How many updates may have come before the first packet that was captured.
local MAX_SKIPPED = 8

local function open_first(side, to, low, phase, sealed)
    for _, secret in ipairs(secrets[to] or {}) do
        local key, generation = crypto.key_of(secret.bytes), secret.generation
        for _ = 0, MAX_SKIPPED do
            for upper = 0, MAX_UPPER do
                local packet_number = low + upper * TWO_24
                local plain = generation % 2 == phase and crypto.open(key, packet_number, sealed)
                if plain then
                    side.key, side.generation, side.since = key, generation, packet_number
                    return plain, generation, packet_number
                end
            end
            key, generation = crypto.key_after(key), generation + 1
        end
    end
end

local function open_next(side, packet_number, phase, sealed)
    if side.generation % 2 == phase then
        return crypto.open(side.key, packet_number, sealed), side.generation
    end
    if side.previous and packet_number < side.since then
        return crypto.open(side.previous, packet_number, sealed), side.generation - 1
    end
    local plain = crypto.open(crypto.key_after(side.key), packet_number, sealed)
    if plain then
        side.previous, side.key = side.key, crypto.key_after(side.key)
        side.generation, side.since = side.generation + 1, packet_number
    end
    return plain, side.generation
end

-- Packets without the checksum after which a stream is no longer asked for one.
local MAX_MISSES = 16

-- What a data packet turns out to be when it is first seen; kept, since opening it takes its state of the time.
local function unprotect(packet, header, sealed, chosen)
    local stream, side = packet.stream, packet.side
    if chosen == AUTO then chosen = stream.protection or AUTO end
    -- Of what is not encrypted, the phase bit says whether it has a checksum.
    if header.phase == 1 and (chosen == 1 or chosen == AUTO and stream.misses < MAX_MISSES) and #sealed >= CHECKSUM then
        packet.is_intact = crypto.checksum(packet.number, sealed:sub(1, -CHECKSUM - 1)) == sealed:sub(-CHECKSUM)
        if packet.is_intact then stream.protection = 1 else stream.misses = stream.misses + 1 end
    end
    if chosen == 1 or packet.is_intact then
        packet.protection = header.phase == 1 and 1 or 2
        return
    end
    if not side.key and not side.has_asked then
        -- Of a capture that is being made, the log grows with it.
        side.has_asked = true
        read_key_log(key_log)
    end
    packet.has_key = side.key ~= nil or secrets[header.to] ~= nil
    if not packet.has_key then
        packet.protection = chosen == 0 and 0 or nil
        return
    end
    local was = side.generation
    if side.key then
        packet.plain, packet.generation = open_next(side, packet.number, header.phase, sealed)
    else
        local found
        packet.plain, packet.generation, found = open_first(side, header.to, header.low, header.phase, sealed)
        packet.number = found or packet.number
    end
    packet.protection = 0
    if packet.plain then stream.protection = 0 end
    packet.is_update = was ~= nil and side.generation ~= was
end

-- Finds out what can only be found out in the order of the packets.
local function meet_data(pinfo, packet, header, sealed, chosen)
    local known = receiver_of(pinfo, header.to)
    local stream, owner
    if known then stream, owner = known.stream, known.owner else stream, owner = guess_stream(pinfo, header.to) end
    packet.stream, packet.sender = stream, 1 - owner
    packet.side, packet.peer = stream.sides[packet.sender], stream.sides[owner]
    packet.number = full_number(packet.side.largest + 1, header.low)
    packet.frame, packet.at = pinfo.number, pinfo.rel_ts
    if sealed then unprotect(packet, header, sealed, chosen) end
    packet.side.largest = math.max(packet.side.largest, packet.number)
    packet.side.frames[packet.number] = pinfo.number
end

-- The sending side of a group; without a key until somebody was made a member.
local function group(id)
    groups[id] = groups[id] or new_side()
    return groups[id]
end

local function has_group(id) return groups[id] ~= nil and groups[id].key ~= nil end

-- Somebody is made a member: with this key, and the next packet of the group has this number.
local function meet_group(id, secret, following)
    local side = group(id)
    if side.secret == secret then return end
    side.secret, side.key = secret, crypto.key_of(secret)
    side.largest = math.max(side.largest, following - 1)
end

local function meet_group_data(packet, pinfo, id, low, sealed)
    local side = group(id)
    packet.side, packet.peer = side, new_side()
    packet.number = full_number(side.largest + 1, low)
    packet.frame, packet.at = pinfo.number, pinfo.rel_ts
    packet.protection, packet.generation, packet.has_key = 0, 0, side.key ~= nil
    packet.plain = side.key and sealed and crypto.open(side.key, packet.number, sealed)
    side.largest = math.max(side.largest, packet.number)
    side.frames[packet.number] = pinfo.number
end

-- The number of a message that has these low 24 bits, among those of which this side has sent something.
local function full_message(side, low) return full_number(side.next_message, low) end

local function meet_message(side, id) side.next_message = math.max(side.next_message, id + 1) end

return {
    full_message = full_message,
    meet_message = meet_message,
    group = group,
    has_group = has_group,
    meet_group = meet_group,
    meet_group_data = meet_group_data,
    AUTO = AUTO,
    read_key_log = read_key_log,
    forget = forget,
    name_end = name_end,
    stream_of_initiation = stream_of_initiation,
    receiver_of = receiver_of,
    meet_data = meet_data,
}
