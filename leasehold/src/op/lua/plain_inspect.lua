-- Look at a plain lock.
-- The look is a GETEX: without an option it changes nothing, and a read-only node refuses it.
-- KEYS[1]  the lock
-- reply    a list: TTL in ms (-2 no such key, -1 no TTL), then the holder's token, if it is held;
--          the list {-4} for a value that is too long for a token
local have = redis.pcall('getex', KEYS[1])
if type(have) == 'table' then
    return have
end
if not have then
    return {-2}
end
if #have > 1024 then
    return {-4}
end
return {redis.call('pttl', KEYS[1]), have}
