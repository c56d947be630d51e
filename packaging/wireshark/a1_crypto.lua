-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Opens A1's packets: AES-256-GCM with Noise's rekeying, and the checksum. In Lua alone, since Wireshark 4.0 to 4.4 lends its
-- scripts no cipher. A library of a1.lua; loaded by itself it does nothing.

local band, bxor, lshift, rshift = bit.band, bit.bxor, bit.lshift, bit.rshift
local TWO_32 = 4294967296
local TAG = 16

local SBOX, T0, T1, T2, T3 = {}, {}, {}, {}, {}

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
        SBOX[i] = s
        T0[i] = bxor(lshift(s2, 24), lshift(s, 16), lshift(s, 8), s3)
        T1[i] = bxor(lshift(s3, 24), lshift(s2, 16), lshift(s, 8), s)
        T2[i] = bxor(lshift(s, 24), lshift(s3, 16), lshift(s2, 8), s)
        T3[i] = bxor(lshift(s, 24), lshift(s, 16), lshift(s3, 8), s2)
    end
end

local function substitute(a, b, c, d)
    return bxor(lshift(SBOX[band(rshift(a, 24), 255)], 24), lshift(SBOX[band(rshift(b, 16), 255)], 16),
        lshift(SBOX[band(rshift(c, 8), 255)], 8), SBOX[band(d, 255)])
end

local function round_keys(secret)
    local w, constant = { Struct.unpack(">i4i4i4i4i4i4i4i4", secret) }, 1
    for i = 9, 60 do
        local last = w[i - 1]
        if i % 8 == 1 then
            last = bxor(lshift(last, 8), rshift(last, 24))
            last = bxor(substitute(last, last, last, last), lshift(constant, 24))
            constant = lshift(constant, 1)
        elseif i % 8 == 5 then
            last = substitute(last, last, last, last)
        end
        w[i] = bxor(w[i - 8], last)
    end
    return w
end

local function encrypt_block(w, a, b, c, d)
    a, b, c, d = bxor(a, w[1]), bxor(b, w[2]), bxor(c, w[3]), bxor(d, w[4])
    for k = 5, 53, 4 do
        a, b, c, d =
            bxor(T0[rshift(a, 24)], T1[band(rshift(b, 16), 255)], T2[band(rshift(c, 8), 255)], T3[band(d, 255)], w[k]),
            bxor(T0[rshift(b, 24)], T1[band(rshift(c, 16), 255)], T2[band(rshift(d, 8), 255)], T3[band(a, 255)], w[k + 1]),
            bxor(T0[rshift(c, 24)], T1[band(rshift(d, 16), 255)], T2[band(rshift(a, 8), 255)], T3[band(b, 255)], w[k + 2]),
            bxor(T0[rshift(d, 24)], T1[band(rshift(a, 16), 255)], T2[band(rshift(b, 8), 255)], T3[band(c, 255)], w[k + 3])
    end
    return bxor(substitute(a, b, c, d), w[57]), bxor(substitute(b, c, d, a), w[58]),
        bxor(substitute(c, d, a, b), w[59]), bxor(substitute(d, a, b, c), w[60])
end

-- A step to the right in GHASH's field, whose first bit is the lowest power.
local function halve(z)
    local carry = band(z[4], 1) == 1 and 0xe1000000 or 0
    return {
        bxor(rshift(z[1], 1), carry), bxor(rshift(z[2], 1), lshift(z[1], 31)), bxor(rshift(z[3], 1), lshift(z[2], 31)),
        bxor(rshift(z[4], 1), lshift(z[3], 31)),
    }
end

local REDUCED = {}

local function make_ghash_table()
    for byte = 0, 255 do
        local z = { 0, 0, 0, byte }
        for _ = 1, 8 do z = halve(z) end
        REDUCED[byte] = z[1]
    end
end

-- The multiples of the hash's key by each byte.
local function multiples(h)
    local m, at = { [0] = { 0, 0, 0, 0 }, [128] = h }, 64
    while at >= 1 do
        m[at] = halve(m[at * 2])
        at = rshift(at, 1)
    end
    for high = 1, 7 do
        local i = lshift(1, high)
        for j = 1, i - 1 do
            local p, q = m[i], m[j]
            m[i + j] = { bxor(p[1], q[1]), bxor(p[2], q[2]), bxor(p[3], q[3]), bxor(p[4], q[4]) }
        end
    end
    return m
end

local function ghash(m, text)
    local y0, y1, y2, y3 = 0, 0, 0, 0
    local padded = text .. string.rep("\0", -#text % 16) .. Struct.pack(">I4I4I4I4", 0, 0, 0, #text * 8)
    for at = 1, #padded, 16 do
        local a, b, c, d = Struct.unpack(">i4i4i4i4", padded, at)
        local x = { bxor(y0, a), bxor(y1, b), bxor(y2, c), bxor(y3, d) }
        y0, y1, y2, y3 = 0, 0, 0, 0
        for word = 4, 1, -1 do
            for shift = 0, 24, 8 do
                local p = m[band(rshift(x[word], shift), 255)]
                local carry = REDUCED[band(y3, 255)]
                y3 = bxor(rshift(y3, 8), lshift(y2, 24), p[4])
                y2 = bxor(rshift(y2, 8), lshift(y1, 24), p[3])
                y1 = bxor(rshift(y1, 8), lshift(y0, 24), p[2])
                y0 = bxor(rshift(y0, 8), carry, p[1])
            end
        end
    end
    return y0, y1, y2, y3
end

local function key_of(secret)
    local w = round_keys(secret)
    return { w = w, m = multiples({ encrypt_block(w, 0, 0, 0, 0) }) }
end

local function apply_keystream(key, high, low, text)
    local out = {}
    for at = 1, #text, 16 do
        local block = text:sub(at, at + 15)
        local a, b, c, d = encrypt_block(key.w, 0, high, low, (at - 1) / 16 + 2)
        local p, q, r, s = Struct.unpack(">i4i4i4i4", block .. string.rep("\0", 16 - #block))
        out[#out + 1] = Struct.pack(">i4i4i4i4", bxor(a, p), bxor(b, q), bxor(c, r), bxor(d, s)):sub(1, #block)
    end
    return table.concat(out)
end

-- The frames of a packet, or nil if it was not sealed with this key and number.
local function open(key, packet_number, sealed)
    if #sealed < TAG then return nil end
    local high, low = math.floor(packet_number / TWO_32), packet_number % TWO_32
    local text = sealed:sub(1, -TAG - 1)
    local a, b, c, d = ghash(key.m, text)
    local p, q, r, s = encrypt_block(key.w, 0, high, low, 1)
    if Struct.pack(">i4i4i4i4", bxor(a, p), bxor(b, q), bxor(c, r), bxor(d, s)) ~= sealed:sub(-TAG) then return nil end
    return apply_keystream(key, high, low, text)
end

-- Noise's REKEY.
local function key_after(key)
    key.next = key.next or key_of(apply_keystream(key, 0xffffffff, 0xffffffff, string.rep("\0", 32)))
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
make_ghash_table()
make_crc_table()

return { key_of = key_of, key_after = key_after, open = open, checksum = checksum }
