-- The queue of a key, in three structures that come and go with it:
--   until    when each place runs out, by owner (sorted set); holds every place
--   queue    the number of each place that counts, by owner (sorted set)
--   places   number and host of each place, by owner (hash)
-- A place that was overtaken is missing in queue alone, until its owner attempts again.

local function drop_place(until_, queue, places, owner)
  redis.call('ZREM', until_, owner)
  redis.call('ZREM', queue, owner)
  redis.call('HDEL', places, owner)
end

-- Each place runs out once, so that this costs nothing but what queueing paid for.
local function drop_expired_places(until_, queue, places, now)
  for _, owner in ipairs(redis.call('ZRANGEBYSCORE', until_, '-inf', int(now))) do
    drop_place(until_, queue, places, owner)
  end
end

-- The number and the host of an owner's place, or nothing.
local function place_of(places, owner)
  local place = redis.call('HGET', places, owner)
  if not place then
    return nil
  end
  local number, host = string.match(place, '^(%d+) (.*)$')
  return tonumber(number), host
end

local function ring(queue, places, bell, key)
  local head = redis.call('ZRANGE', queue, 0, RING_DEPTH - 1)
  for position, owner in ipairs(head) do
    local number, host = place_of(places, owner)
    local message = int(number) .. ' ' .. (position - 1) .. ' lease/' .. key
    redis.call('PUBLISH', bell .. host, message)
  end
end
