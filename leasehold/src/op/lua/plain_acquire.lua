-- Take a plain lock: a string with the holder's token, set if there is none. May be sent twice.
-- Nothing definite is said without a write that a read-only node refuses; the first write of who
-- takes the lock is one that a full server refuses.
-- KEYS[1]  the lock
-- KEYS[2]  the key of its fencing tokens, if one is asked for: minted where there was no hold
-- ARGV[1]  hold
-- ARGV[2]  TTL in ms; a longer one that the hold has already is kept
-- reply    nil: held | a text: held, and this is its token
--          | -5: the key of the tokens holds no number | else the lock's TTL in ms, -1 without one
local have = redis.pcall('get', KEYS[1])
local mine = have == ARGV[1]
if have then
    -- Without an option it changes nothing, and is a write all the same.
    local probe = redis.pcall('getex', KEYS[1])
    if type(probe) == 'table' then
        return probe
    end
    if type(have) == 'table' then
        return have
    end
    if not mine then
        return redis.call('pttl', KEYS[1])
    end
end
local token = nil
if KEYS[2] then
    token = mine and redis.pcall('get', KEYS[2])
    if not token then
        local time = redis.pcall('time')
        if time['err'] then
            return time
        end
        -- Before the hold is written, so that a refusal leaves none.
        local minted = redis.pcall('incr', KEYS[2])
        -- A server that has forgotten its tokens must not begin again below them.
        local floor = tonumber(time[1]) * 1048576 + tonumber(time[2])
        if type(minted) == 'number' and minted < floor then
            minted = redis.pcall('set', KEYS[2], string.format('%.0f', floor))
        end
        -- Read back as a text, since a number would lose digits.
        local failed = type(minted) == 'table' and minted['err']
        token = failed and minted or redis.pcall('get', KEYS[2])
    end
    local failed = type(token) == 'table' and token['err']
    local odd = failed
        and (string.match(failed, 'WRONGTYPE')
            or string.match(failed, 'integer')
            or string.match(failed, 'overflow'))
        or not failed and not string.match(token, '^%d+$')
    if failed or odd then
        return odd and -5 or token
    end
end
if not mine then
    local set = redis.pcall('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
    if set['err'] then
        return set
    end
    return token
end
if redis.call('pttl', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('pexpire', KEYS[1], ARGV[2])
end
return token
