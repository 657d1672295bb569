-- Keep a session alive that has not run out.
--   KEYS  hosts, epoch
--   ARGV  prefix, id, ttl
-- Answers '', 'expired' or 'fenced'.

local id, ttl = ARGV[2], tonumber(ARGV[3])
local expires = redis.call('ZSCORE', HOSTS, id)
if not expires then
  return 'fenced'
end
if tonumber(expires) <= now then
  return 'expired'
end
-- A server out of memory refuses the first write of a script if it could grow, and none after it.
-- Deleting what is not there comes first, so that a full server does not cost hosts their sessions.
redis.call('HDEL', K .. 'host:' .. id, '')
redis.call('HSET', K .. 'host:' .. id, 'ttl', ARGV[3])
redis.call('ZADD', HOSTS, int(now + ttl), id)
note_session_ttl(KEYS[2], ttl)
return ''
