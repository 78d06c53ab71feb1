-- Write the record of a client, which tells operators who it is. May be sent twice.
-- KEYS[1]  the record
-- ARGV[1]  since when the client is there, in ms since the epoch; 0 for what the record says, or
--          for now where there is none
-- ARGV[2]  TTL in ms; a longer one that the record has already is kept
-- ARGV[3]  host
-- ARGV[4]  process id
-- ARGV[5]  program
-- ARGV[6]  label, empty for none
-- reply    since when, as text; empty for a user who may not ask for the time
local probe = redis.pcall('hdel', KEYS[1], 'leasehold:probe')
if type(probe) == 'table' then
    return probe
end
local since = ARGV[1]
if since == '0' then
    since = redis.call('hget', KEYS[1], 'since')
end
if not since or since == '' then
    local time = redis.pcall('time')
    since = time['err'] and '' or string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end
local set = redis.pcall('hset', KEYS[1], 'host', ARGV[3], 'pid', ARGV[4], 'program', ARGV[5],
    'label', ARGV[6], 'since', since)
if type(set) == 'table' then
    return set
end
if redis.call('pttl', KEYS[1]) < tonumber(ARGV[2]) then
    local timed = redis.pcall('pexpire', KEYS[1], ARGV[2])
    if type(timed) == 'table' then
        -- A user without this right must not leave a record without an end.
        redis.call('hdel', KEYS[1], 'host', 'pid', 'program', 'label', 'since')
        return timed
    end
end
return since
