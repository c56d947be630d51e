-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Opens A1's packets: AEGIS-128X2 (RFC 10032) with Noise's rekeying, and the checksum. In Lua alone, since Wireshark 4.0 to 4.4 lends its
-- scripts no cipher. A library of a1.lua; loaded by itself it does nothing.

local band, bxor, lshift, rshift = bit.band, bit.bxor, bit.lshift, bit.rshift
local TWO_32 = 4294967296
local TAG = 16

local T0, T1, T2, T3 = {}, {}, {}, {}

local function double(x) return band(bxor(lshift(x, 1), x >= 128 and 0x1b or 0), 255) end

local function make_aes_tables()
    local power, log, x = {}, {}, 1
    for i = 0, 254 do
        power[i], log[x] = x, i
        x = bxor(x, double(x))
    end
    for i = 0, 255 do
        local inverse = i == 0 and 0 or power[(255 - log[i]) % 255]
        local s = inverse
        for turn = 1, 4 do s = bxor(s, band(lshift(inverse, turn), 255), rshift(inverse, 8 - turn)) end
        s = bxor(s, 0x63)
        local s2 = double(s)
        local s3 = bxor(s2, s)
        T0[i] = bxor(lshift(s2, 24), lshift(s, 16), lshift(s, 8), s3)
        T1[i] = bxor(lshift(s3, 24), lshift(s2, 16), lshift(s, 8), s)
        T2[i] = bxor(lshift(s, 24), lshift(s3, 16), lshift(s2, 8), s)
        T3[i] = bxor(lshift(s, 24), lshift(s, 16), lshift(s3, 8), s2)
    end
end

local function zeros() return { 0, 0, 0, 0 } end

local function words(text, at) return { Struct.unpack(">i4i4i4i4", text, at) } end

-- AEGIS-128X2 has two states of eight blocks, here 32 words each. A round of AES takes a block to the next one's place.
local function update(state, first, second)
    local old = {}
    for i = 1, 32 do old[i] = state[i] end
    for block = 0, 7 do
        local from, at = (block + 7) % 8 * 4, block * 4
        local a, b, c, d = old[from + 1], old[from + 2], old[from + 3], old[from + 4]
        state[at + 1] =
            bxor(T0[rshift(a, 24)], T1[band(rshift(b, 16), 255)], T2[band(rshift(c, 8), 255)], T3[band(d, 255)], old[at + 1])
        state[at + 2] =
            bxor(T0[rshift(b, 24)], T1[band(rshift(c, 16), 255)], T2[band(rshift(d, 8), 255)], T3[band(a, 255)], old[at + 2])
        state[at + 3] =
            bxor(T0[rshift(c, 24)], T1[band(rshift(d, 16), 255)], T2[band(rshift(a, 8), 255)], T3[band(b, 255)], old[at + 3])
        state[at + 4] =
            bxor(T0[rshift(d, 24)], T1[band(rshift(a, 16), 255)], T2[band(rshift(b, 8), 255)], T3[band(c, 255)], old[at + 4])
    end
    for word = 1, 4 do
        state[word] = bxor(state[word], first[word])
        state[word + 16] = bxor(state[word + 16], second[word])
    end
end

local C0 = words("\0\1\1\2\3\5\8\13\21\34\55\89\144\233\121\98", 1)
local C1 = words("\219\61\24\85\109\194\47\241\32\17\49\66\115\181\40\221", 1)

-- The state on this side, 0 or 1, for a packet.
local function begin(key, packet_number, side)
    local state, nonce = {}, { key.mask[1], key.mask[2], bxor(key.mask[3], math.floor(packet_number / TWO_32)),
        bxor(key.mask[4], packet_number % TWO_32) }
    for word = 1, 4 do
        local k, c0, c1 = key.words[word], C0[word], C1[word]
        local mixed = bxor(k, nonce[word])
        state[word], state[word + 4], state[word + 8], state[word + 12] = mixed, c1, c0, c1
        state[word + 16], state[word + 20], state[word + 24], state[word + 28] = mixed, bxor(k, c0), bxor(k, c1), bxor(k, c0)
    end
    local context = side * 0x01000000 + 0x00010000
    for _ = 1, 10 do
        state[13], state[29] = bxor(state[13], context), bxor(state[29], context)
        update(state, nonce, key.words)
    end
    return state
end

local function keystream(state)
    local first, second = {}, {}
    for i = 1, 4 do
        first[i] = bxor(state[i + 24], state[i + 4], band(state[i + 8], state[i + 12]))
        second[i] = bxor(state[i + 20], state[i + 8], band(state[i + 24], state[i + 28]))
    end
    return first, second
end

-- The 16 bytes of `chunk` at `at` with a keystream, of which those within the text.
local function open_block(stream, chunk, at, length)
    local sealed = words(chunk, at)
    local plain = Struct.pack(">i4i4i4i4", bxor(stream[1], sealed[1]), bxor(stream[2], sealed[2]), bxor(stream[3], sealed[3]),
        bxor(stream[4], sealed[4])):sub(1, math.max(0, math.min(16, length - at + 1)))
    return plain, words(plain .. string.rep("\0", 16 - #plain), 1)
end

local function open_chunk(states, chunk)
    local padded, first, second = chunk .. string.rep("\0", 64 - #chunk), {}, {}
    for side, state in ipairs(states) do
        local at, one, other = side * 16 - 15, keystream(state)
        local plain
        first[side], plain = open_block(one, padded, at, #chunk)
        second[side], other = open_block(other, padded, at + 32, #chunk)
        update(state, plain, other)
    end
    return first[1] .. first[2] .. second[1] .. second[2]
end

local function tag_of(states, length)
    local tag = zeros()
    for _, state in ipairs(states) do
        local lengths = words(Struct.pack("<I4I4I4I4", 0, 0, length * 8, 0), 1)
        for word = 1, 4 do lengths[word] = bxor(lengths[word], state[word + 8]) end
        for _ = 1, 7 do update(state, lengths, lengths) end
        for i = 1, 28 do
            local word = (i - 1) % 4 + 1
            tag[word] = bxor(tag[word], state[i])
        end
    end
    return Struct.pack(">i4i4i4i4", tag[1], tag[2], tag[3], tag[4])
end

local function key_of(secret) return { words = words(secret, 1), mask = words(secret, 17) } end

-- The frames of a packet, or nil if it was not sealed with this key and number.
local function open(key, packet_number, sealed)
    if #sealed < TAG then return nil end
    local states, out = { begin(key, packet_number, 0), begin(key, packet_number, 1) }, {}
    local length = #sealed - TAG
    for at = 1, length, 64 do out[#out + 1] = open_chunk(states, sealed:sub(at, math.min(at + 63, length))) end
    if tag_of(states, length) ~= sealed:sub(-TAG) then return nil end
    return table.concat(out)
end

-- Noise's REKEY: what zeros become under the last nonce.
local function key_after(key)
    if not key.next then
        local last = { words = key.words, mask = {} }
        for word = 1, 4 do last.mask[word] = word > 2 and bxor(key.mask[word], -1) or key.mask[word] end
        key.next = { words = (keystream(begin(last, 0, 0))), mask = (keystream(begin(last, 0, 1))) }
    end
    return key.next
end

local CRC = {}

local function make_crc_table()
    for byte = 0, 255 do
        local value = byte
        for _ = 1, 8 do value = bxor(rshift(value, 1), band(value, 1) == 1 and 0xedb88320 or 0) end
        CRC[byte] = value
    end
end

-- As a string of four bytes.
local function checksum(packet_number, text)
    local value = -1
    local covered = Struct.pack(">I4I4", math.floor(packet_number / TWO_32), packet_number % TWO_32) .. text
    for at = 1, #covered do value = bxor(rshift(value, 8), CRC[band(bxor(value, covered:byte(at)), 255)]) end
    return Struct.pack(">i4", bxor(value, -1))
end

make_aes_tables()
make_crc_table()

return { key_of = key_of, key_after = key_after, open = open, checksum = checksum }
