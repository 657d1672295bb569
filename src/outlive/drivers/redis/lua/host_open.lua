-- Begin a session, or repeat that while it lives.
--   KEYS  hosts, epoch
--   ARGV  prefix, id, name, ttl, metadata
-- Answers 1, or 0 if the id has ended or its time has run out.

local id, ttl = ARGV[2], tonumber(ARGV[4])
local expires = redis.call('ZSCORE', HOSTS, id)
if (expires and tonumber(expires) <= now) or redis.call('ZSCORE', HOSTS .. ':ended', id) then
  return 0
end
redis.call('HSET', K .. 'host:' .. id, 'name', ARGV[3], 'ttl', ARGV[4], 'metadata', ARGV[5])
redis.call('ZADD', HOSTS, int(now + ttl), id)
redis.call('ZADD', HOSTS .. ':started', 'NX', int(now), id)
redis.call('SADD', K .. 'claimants', id)
note_session_ttl(KEYS[2], ttl)
return 1
