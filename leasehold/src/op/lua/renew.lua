-- Renew, or only look at, many holds. A bad key does not stop the others. May be sent twice.
-- KEYS     the locks
-- ARGV     for each lock: hold field, then TTL in ms, or 0 to only look
-- reply    a list with, for each lock, 1: held | 0: not held, or of another type
local reply = {}
for i, key in ipairs(KEYS) do
    local probe = redis.pcall('hdel', key, 'leasehold:probe')
    if type(probe) == 'table' and not string.match(probe['err'], 'WRONGTYPE') then
        return probe
    end
    reply[i] = 0
    if type(probe) ~= 'table' and redis.call('hexists', key, ARGV[2 * i - 1]) == 1 then
        local ttl = tonumber(ARGV[2 * i])
        if ttl > 0 and redis.call('pttl', key) < ttl then
            redis.call('pexpire', key, ARGV[2 * i])
        end
        reply[i] = 1
    end
end
return reply
