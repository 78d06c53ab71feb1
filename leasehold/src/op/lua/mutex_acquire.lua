-- Reach a hold count on a mutex. May be sent twice.
-- Nothing definite is said without a write that a read-only node refuses; the first write is the
-- one that a full server refuses.
-- KEYS[1]  the lock
-- KEYS[2]  the key of its fencing tokens, if one is asked for: minted where there was no hold
-- ARGV[1]  hold field
-- ARGV[2]  count to reach, from the count before it or from itself; 1 also from no lock at all
-- ARGV[3]  TTL in ms; a longer one that the lock has already is kept
-- reply    nil: held | a text: held, and this is its token | -3: the step's base is gone
--          | -5: the key of the tokens holds no number | else the lock's TTL in ms, -1 without one
local have = redis.pcall('hget', KEYS[1], ARGV[1])
local wrong = type(have) == 'table'
-- Asked before anything is written: without this right, a lock without an end would be left.
local left = redis.pcall('pttl', KEYS[1])
if type(left) == 'table' then
    return left
end
local want = tonumber(ARGV[2])
local count = not wrong and tonumber(have or '0') or 0
local first = not wrong and want == 1 and redis.call('exists', KEYS[1]) == 0
if first or (count > 0 and (count == want or count == want - 1)) then
    local token = nil
    if KEYS[2] then
        token = count > 0 and redis.pcall('get', KEYS[2])
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
            local probe = redis.pcall('hdel', KEYS[1], 'leasehold:probe')
            if type(probe) == 'table' then
                return probe
            end
            return odd and -5 or token
        end
    end
    local set = redis.pcall('hset', KEYS[1], ARGV[1], ARGV[2])
    if type(set) == 'table' then
        return set
    end
    if left < tonumber(ARGV[3]) then
        local timed = redis.pcall('pexpire', KEYS[1], ARGV[3])
        if type(timed) == 'table' then
            -- And so it would without this one; and a wrong count, on a lock that was held.
            if first then
                redis.call('hdel', KEYS[1], ARGV[1])
            else
                redis.call('hset', KEYS[1], ARGV[1], have)
            end
            return timed
        end
    end
    return token
end
local probe = redis.pcall('hdel', KEYS[1], 'leasehold:probe')
if type(probe) == 'table' then
    return probe
end
if wrong then
    return have
end
if count > 0 or want > 1 then
    return -3
end
return left
