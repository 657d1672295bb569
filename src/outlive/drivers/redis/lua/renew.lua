-- Extend a grant that still lasts.
--   KEYS  lease, history, epoch
--   ARGV  slot, owner, token, ttl, state (or missing)
-- Answers {1, version, state}, or {0, 'expired' | 'fenced' | 'broken'}.

local lease, history, epoch = unpack(KEYS)
local slot, ttl, state = ARGV[1], tonumber(ARGV[4]), ARGV[5]
local now = now_us()

local row = redis.call('HMGET', lease, 'owner:' .. slot, 'token:' .. slot, 'expires:' .. slot,
  'version:' .. slot, 'state')
if row[1] ~= ARGV[2] or row[2] ~= ARGV[3] then
  return {0, why_ended(history, slot, ARGV[3])}
end
if tonumber(row[3]) <= now then
  return {0, 'expired'}
end
local version = tonumber(row[4]) + 1
-- A server out of memory refuses the first write of a script if it could grow, and none after it.
-- Deleting what is not there comes first, so that a full server does not cost owners their leases.
redis.call('HDEL', lease, '')
redis.call('HSET', lease, 'expires:' .. slot, int(now + ttl), 'renewed:' .. slot, int(now),
  'ttl:' .. slot, ARGV[4], 'version:' .. slot, version)
if state then
  redis.call('HSET', lease, 'state', state)
end
-- Asked each time: the run of the server may have begun since the grant, and knows of no ttl yet.
local known = redis.call('HGET', epoch, 'ttl')
if known and tonumber(known) < ttl then
  redis.call('HSET', epoch, 'ttl', ARGV[4])
end
return {1, version, state or row[5]}
