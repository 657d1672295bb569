-- End every grant of a key, whoever owns it.
--   KEYS  lease, history, until, queue, places
--   ARGV  key, reason, bell
-- Answers {now, records as they were}, {now} on a free key, or {} for one never granted.

local lease, history, until_, queue, places = unpack(KEYS)
local now = now_us()
local last = redis.call('HMGET', lease, 'limit', 'token')
if not last[1] then
  return {}
end
local found = describe(lease, until_, now, true, '')
if not found then
  return {now}
end

-- Greater already now: whoever asks the store must refuse the old owners at once.
local token = int(math.max(tonumber(last[2]) + 1, now))
for number = 4, #found do
  local slot, owner, old, version, acquired =
    found[number][1], found[number][2], found[number][3], found[number][4], found[number][7]
  redis.call('HDEL', lease, 'owner:' .. slot, 'expires:' .. slot)
  redis.call('HSET', lease, 'version:' .. slot, tonumber(version) + 1, 'free:' .. slot, int(now),
    'token:' .. slot, token)
  push_history(history, slot, old, owner, acquired, now, 'broken', ARGV[2])
end
redis.call('HSET', lease, 'token', token)
if redis.call('EXISTS', until_) == 1 then
  drop_expired_places(until_, queue, places, now)
  ring(queue, places, ARGV[3], ARGV[1])
end
return {now, found}
