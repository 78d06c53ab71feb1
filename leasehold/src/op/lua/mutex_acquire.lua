-- Reach a hold count on a mutex. May be sent twice.
-- KEYS[1]  the lock
-- ARGV[1]  hold field
-- ARGV[2]  count to reach, from the count before it or from itself; 1 also from no lock at all
-- ARGV[3]  TTL in ms; a longer one that the lock has already is kept
-- reply    nil: held | -3: the step's base is gone | else the lock's TTL in ms, -1 without one
local probe = redis.pcall('hdel', KEYS[1], 'leasehold:probe')
if type(probe) == 'table' then
    return probe
end
local want = tonumber(ARGV[2])
local have = tonumber(redis.call('hget', KEYS[1], ARGV[1]) or '0')
local first = want == 1 and redis.call('exists', KEYS[1]) == 0
if first or (have > 0 and (have == want or have == want - 1)) then
    local set = redis.pcall('hset', KEYS[1], ARGV[1], ARGV[2])
    if type(set) == 'table' then
        return set
    end
    if redis.call('pttl', KEYS[1]) < tonumber(ARGV[3]) then
        redis.call('pexpire', KEYS[1], ARGV[3])
    end
    return nil
end
if have > 0 or want > 1 then
    return -3
end
return redis.call('pttl', KEYS[1])
