-- Look at a mutex. Only a node that takes writes may answer, so the first call is a write.
-- KEYS[1]  the lock
-- reply    a list: TTL in ms (-2 no such key, -1 no TTL), then each field and its value;
--          the list {-4} for a hash with more fields than a lock can have
local probe = redis.pcall('hdel', KEYS[1], 'leasehold:probe')
if type(probe) == 'table' then
    return probe
end
if redis.call('hlen', KEYS[1]) > 1024 then
    return {-4}
end
local reply = redis.call('hgetall', KEYS[1])
table.insert(reply, 1, redis.call('pttl', KEYS[1]))
return reply
