-- Leave a hold count on a mutex; 0 frees it and announces that. May be sent twice.
-- KEYS[1]  the lock
-- ARGV[1]  hold field
-- ARGV[2]  count to leave, from the count after it or from itself; 0 from any
-- ARGV[3]  TTL in ms for what is left; a longer one that the lock has already is kept
-- ARGV[4]  channel
-- ARGV[5]  PUBLISH or SPUBLISH
-- reply    2: freed, but the announcement was refused | 1: freed | 0: still held | -3: no such hold
local probe = redis.pcall('hdel', KEYS[1], 'leasehold:probe')
if type(probe) == 'table' then
    return probe
end
local leave = tonumber(ARGV[2])
local count = redis.call('hget', KEYS[1], ARGV[1]) or '0'
local have = tonumber(count)
if have == 0 or (leave > 0 and have ~= leave and have ~= leave + 1) then
    return -3
end
if leave > 0 then
    -- Asked before anything is written.
    local left = redis.pcall('pttl', KEYS[1])
    if type(left) == 'table' then
        return left
    end
    local set = redis.pcall('hset', KEYS[1], ARGV[1], ARGV[2])
    if type(set) == 'table' then
        return set
    end
    if left < tonumber(ARGV[3]) then
        local timed = redis.pcall('pexpire', KEYS[1], ARGV[3])
        if type(timed) == 'table' then
            redis.call('hset', KEYS[1], ARGV[1], count)
            return timed
        end
    end
    return 0
end
redis.call('del', KEYS[1])
if type(redis.pcall(ARGV[5], ARGV[4], '0')) == 'table' then
    return 2
end
return 1
