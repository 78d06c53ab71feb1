-- Break a mutex, whoever holds it, and announce that. Refuses a key that is no mutex.
-- KEYS[1]  the lock
-- ARGV[1]  channel
-- ARGV[2]  PUBLISH or SPUBLISH
-- reply    2: broken, but the announcement was refused | 1: broken | 0: it was free | -4: no mutex
local probe = redis.pcall('hdel', KEYS[1], 'leasehold:probe')
if type(probe) == 'table' then
    return probe
end
local fields = redis.call('hlen', KEYS[1])
if fields == 0 then
    return 0
end
if fields > 1 then
    return -4
end
local found = redis.call('hgetall', KEYS[1])
local client = string.match(found[1], '^(%x+%-%x+%-%x+%-%x+%-%x+):%-?%d+$')
if not client or #client ~= 36 or not string.match(found[2], '^%d+$') then
    return -4
end
redis.call('del', KEYS[1])
if type(redis.pcall(ARGV[2], ARGV[1], '0')) == 'table' then
    return 2
end
return 1
