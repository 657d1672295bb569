-- Give up a place in the queue; if the key is free, wake the new head.
--   KEYS  lease, until, queue, places
--   ARGV  key, owner, place (0 for whichever it is), bell
-- Answers 1 if there was such a place.

local lease, until_, queue, places = unpack(KEYS)
local place = place_of(places, ARGV[2])
if not place or (ARGV[3] ~= '0' and place ~= tonumber(ARGV[3])) then
  return 0
end
drop_place(until_, queue, places, ARGV[2])
if redis.call('EXISTS', until_) == 0 then
  return 1
end

local now = now_us()
drop_expired_places(until_, queue, places, now)
local row = redis.call('HMGET', lease, 'limit', 'slots')
local live = 0
for slot = 0, (tonumber(row[2]) or 0) - 1 do
  local fields = redis.call('HMGET', lease, 'owner:' .. slot, 'expires:' .. slot)
  if fields[1] and tonumber(fields[2]) > now then
    live = live + 1
  end
end
if live < (tonumber(row[1]) or 1) then
  ring(queue, places, ARGV[4], ARGV[1])
end
return 1
