-- Free a plain lock that this hold has, and announce that. May be sent twice.
-- The look is a GETEX: without an option it changes nothing, and a read-only node refuses it.
-- KEYS[1]  the lock
-- ARGV[1]  hold
-- ARGV[2]  channel
-- ARGV[3]  PUBLISH or SPUBLISH
-- reply    2: freed, but the announcement was refused | 1: freed | -3: no such hold
local have = redis.pcall('getex', KEYS[1])
if type(have) == 'table' then
    return have
end
if have ~= ARGV[1] then
    return -3
end
redis.call('del', KEYS[1])
if type(redis.pcall(ARGV[3], ARGV[2], '0')) == 'table' then
    return 2
end
return 1
