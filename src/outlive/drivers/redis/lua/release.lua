-- Give a grant up, keep its token, and wake the head of the queue.
--   KEYS  lease, history, until, queue, places
--   ARGV  slot, owner, token, key, bell
-- Answers '', 'fenced' or 'broken'.

local lease, history, until_, queue, places = unpack(KEYS)
local slot = ARGV[1]
local now = now_us()

local row = redis.call('HMGET', lease, 'owner:' .. slot, 'token:' .. slot, 'expires:' .. slot,
  'version:' .. slot, 'acquired:' .. slot)
if row[1] ~= ARGV[2] or row[2] ~= ARGV[3] then
  return why_ended(history, slot, ARGV[3])
end
local expires = tonumber(row[3])
local ended = math.min(now, expires)
-- The deletion comes first: a server out of memory refuses only a first write that could grow.
redis.call('HDEL', lease, 'owner:' .. slot, 'expires:' .. slot)
redis.call('HSET', lease, 'version:' .. slot, tonumber(row[4]) + 1, 'free:' .. slot, int(ended))
local why = expires > now and 'released' or 'expired'
push_history(history, slot, row[2], row[1], row[5], ended, why)
if redis.call('EXISTS', until_) == 1 then
  drop_expired_places(until_, queue, places, now)
  ring(queue, places, ARGV[5], ARGV[4])
end
return ''
