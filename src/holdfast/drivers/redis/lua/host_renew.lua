-- Keep a session alive that has not run out.
--   KEYS  hosts, host, epoch
--   ARGV  id, ttl
-- Answers '', 'expired' or 'fenced'.

local hosts, host, epoch = unpack(KEYS)
local id, ttl = ARGV[1], tonumber(ARGV[2])
local now = now_us()

local expires = redis.call('ZSCORE', hosts, id)
if not expires then
  return 'fenced'
end
if tonumber(expires) <= now then
  return 'expired'
end
-- A server out of memory refuses the first write of a script if it could grow, and none after it.
-- Deleting what is not there comes first, so that a full server does not cost hosts their sessions.
redis.call('HDEL', host, '')
redis.call('HSET', host, 'ttl', ARGV[2])
redis.call('ZADD', hosts, int(now + ttl), id)
note_session_ttl(epoch, ttl)
return ''
