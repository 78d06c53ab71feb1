-- Read the record of a client.
-- KEYS[1]  the record
-- reply    a list of host, process id, program, label, since; empty texts for what is not there
local probe = redis.pcall('hdel', KEYS[1], 'leasehold:probe')
if type(probe) == 'table' then
    return probe
end
local reply = {}
for i, field in ipairs({'host', 'pid', 'program', 'label', 'since'}) do
    reply[i] = redis.call('hget', KEYS[1], field) or ''
end
return reply
