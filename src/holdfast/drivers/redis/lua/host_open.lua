-- Begin a session, or repeat that while it lives.
--   KEYS  hosts, host, epoch
--   ARGV  id, name, ttl, metadata
-- Answers 1, or 0 if the id has ended or its time has run out.

local hosts, host, epoch = unpack(KEYS)
local id, ttl = ARGV[1], tonumber(ARGV[3])
local now = now_us()

local expires = redis.call('ZSCORE', hosts, id)
if (expires and tonumber(expires) <= now) or redis.call('ZSCORE', hosts .. ':ended', id) then
  return 0
end
redis.call('HSET', host, 'name', ARGV[2], 'ttl', ARGV[3], 'metadata', ARGV[4])
redis.call('ZADD', hosts, int(now + ttl), id)
redis.call('ZADD', hosts .. ':started', 'NX', int(now), id)
note_session_ttl(epoch, ttl)
return 1
