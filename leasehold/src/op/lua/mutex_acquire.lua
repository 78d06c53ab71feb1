-- Reach a hold count on a mutex. May be sent twice.
-- Nothing definite is said without a write that a read-only node refuses; the first write is the
-- one that a full server refuses.
-- KEYS[1]  the lock
-- ARGV[1]  hold field
-- ARGV[2]  count to reach, from the count before it or from itself; 1 also from no lock at all
-- ARGV[3]  TTL in ms; a longer one that the lock has already is kept
-- reply    nil: held | -3: the step's base is gone | else the lock's TTL in ms, -1 without one
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
    local set = redis.pcall('hset', KEYS[1], ARGV[1], ARGV[2])
    if type(set) == 'table' then
        return set
    end
    if left < tonumber(ARGV[3]) then
        local timed = redis.pcall('pexpire', KEYS[1], ARGV[3])
        if type(timed) == 'table' then
            -- And so it would without this one.
            redis.call('hdel', KEYS[1], ARGV[1])
            return timed
        end
    end
    return nil
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
