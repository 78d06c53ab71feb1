-- Break a plain lock, whoever holds it, and announce that. Refuses what is too long for a token.
-- The look is a GETEX: without an option it changes nothing, and a read-only node refuses it.
-- KEYS[1]  the lock
-- ARGV[1]  channel
-- ARGV[2]  PUBLISH or SPUBLISH
-- reply    2: broken, but the announcement was refused | 1: broken | 0: it was free | -4: no lock
local have = redis.pcall('getex', KEYS[1])
if type(have) == 'table' then
    return have
end
if not have then
    return 0
end
if #have > 1024 then
    return -4
end
redis.call('del', KEYS[1])
if type(redis.pcall(ARGV[2], ARGV[1], '0')) == 'table' then
    return 2
end
return 1
