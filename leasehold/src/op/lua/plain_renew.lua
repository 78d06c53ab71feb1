-- Renew, or only look at, many plain locks. A bad key does not stop the others. May be sent twice.
-- KEYS     the locks
-- ARGV     for each lock: hold, then TTL in ms, or 0 to only look
-- reply    a list with, for each lock, 1: held | 0: not held, or of another type
local reply = {}
for i, key in ipairs(KEYS) do
    -- Without an option it changes nothing, and is a write all the same.
    local have = redis.pcall('getex', key)
    if type(have) == 'table' and not string.match(have['err'], 'WRONGTYPE') then
        return have
    end
    reply[i] = 0
    if have == ARGV[2 * i - 1] then
        local ttl = tonumber(ARGV[2 * i])
        if ttl > 0 and redis.call('pttl', key) < ttl then
            redis.call('pexpire', key, ARGV[2 * i])
        end
        reply[i] = 1
    end
end
return reply
