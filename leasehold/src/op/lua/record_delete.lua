-- Delete the record of a client. May be sent twice.
-- KEYS[1]  the record
-- reply    1: deleted | 0: there was none
local probe = redis.pcall('hdel', KEYS[1], 'leasehold:probe')
if type(probe) == 'table' then
    return probe
end
return redis.call('del', KEYS[1])
