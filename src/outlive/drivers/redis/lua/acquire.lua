-- Own a key, or learn why not, and have a place in its queue.
--   KEYS  lease, history, until, queue, places, epoch, index, numbers
--   ARGV  key, owner, ttl, metadata, host, limit, queue ttl, resume (a host name, or nothing)
-- Answers {1, largest ttl, slot, token, version, state, previous owner}, or
--   {0, largest ttl, owner, retry in us, place, ahead, limit}, or
--   {-1} where the epoch has to be told first.
-- Costs O(slots), and O(log n) for a queue of n.

-- A key that more wait for is not waited for in earnest; those beyond poll.
local PLACES_MAX = 10000

local lease, history, until_, queue, places, epoch, index, numbers = unpack(KEYS)
local key, owner, ttl, limit = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[6])
local now = now_us()

local age = redis.call('HMGET', epoch, 'until', 'ttl')
if not age[1] then
  return {-1}
end
-- Until then, owners from before a restart may believe in grants that the store has forgotten.
local quiet_until, ttl_max = tonumber(age[1]), tonumber(age[2])

local row = redis.call('HMGET', lease, 'limit', 'slots', 'token', 'state',
  'owner:0', 'expires:0', 'version:0', 'token:0', 'acquired:0')
local old_limit, used = tonumber(row[1]) or limit, tonumber(row[2]) or 0

local slots = {}
if used > 0 then
  slots[0] = {owner = row[5], expires = tonumber(row[6])}
end
if used > 1 then
  local names = {}
  for slot = 1, used - 1 do
    names[2 * slot - 1] = 'owner:' .. slot
    names[2 * slot] = 'expires:' .. slot
  end
  local fields = redis.call('HMGET', lease, unpack(names))
  for slot = 1, used - 1 do
    slots[slot] = {owner = fields[2 * slot - 1], expires = tonumber(fields[2 * slot])}
  end
end

local place, ahead = nil, 0
if redis.call('EXISTS', until_) == 1 then
  drop_expired_places(until_, queue, places, now)
  place = place_of(places, owner)
  if place then
    -- One that was overtaken counts again.
    redis.call('ZADD', queue, int(place), owner)
    ahead = redis.call('ZCOUNT', queue, '-inf', '(' .. int(place))
  else
    ahead = redis.call('ZCARD', queue)
  end
end

-- Token, acquired and version of a slot.
local function details(slot)
  if slot == 0 then
    return row[8], row[9], tonumber(row[7])
  end
  local fields = redis.call('HMGET', lease, 'token:' .. slot, 'acquired:' .. slot,
    'version:' .. slot)
  return fields[1], fields[2], tonumber(fields[3])
end

-- When the key became free: the earliest instant at which the head of the queue could have answered.
local function free_since()
  local since = now
  for number = 0, used - 1 do
    local slot = slots[number]
    if not slot.owner then
      since = math.min(since, tonumber(redis.call('HGET', lease, 'free:' .. number)))
    elseif slot.expires <= now then
      since = math.min(since, slot.expires)
    end
  end
  return since
end

local function end_grant(slot, why)
  local token, acquired = details(slot)
  local ended = math.min(now, slots[slot].expires)
  push_history(history, slot, token, slots[slot].owner, acquired, ended, why)
end

-- Give the key another number of slots. Called only when nobody owns any of them.
local function resize()
  for slot = limit, used - 1 do
    if slots[slot].owner then
      end_grant(slot, 'expired')
    end
    local names = {'free:' .. slot}
    for _, name in ipairs({'owner', 'token', 'version', 'ttl', 'expires', 'acquired', 'renewed',
      'metadata'}) do
      names[#names + 1] = name .. ':' .. slot
    end
    redis.call('HDEL', lease, unpack(names))
  end
  used = math.min(used, limit)
  redis.call('HSET', lease, 'limit', limit, 'slots', used)
end

local function take(slot, again, why)
  local token, acquired, version, previous
  if slot < used then
    token, acquired, version = details(slot)
    if why then
      previous = slots[slot].owner
      end_grant(slot, why)
    end
  end
  if not again then
    -- Time as the second source keeps tokens growing even where the record was lost.
    token = int(math.max((tonumber(row[3]) or 0) + 1, now))
    acquired = int(now)
  end
  version = (version or 0) + 1
  local writes = {'token', again and row[3] or token,
    'owner:' .. slot, owner, 'token:' .. slot, token, 'version:' .. slot, version,
    'ttl:' .. slot, ARGV[3], 'expires:' .. slot, int(now + ttl), 'acquired:' .. slot, acquired,
    'renewed:' .. slot, int(now), 'metadata:' .. slot, ARGV[4]}
  if slot >= used then
    writes[#writes + 1] = 'limit'
    writes[#writes + 1] = limit
    writes[#writes + 1] = 'slots'
    writes[#writes + 1] = slot + 1
  end
  redis.call('HSET', lease, unpack(writes))
  if not row[1] then
    redis.call('ZADD', index, 0, key)
  end
  if place then
    drop_place(until_, queue, places, owner)
  end
  if ttl > ttl_max then
    redis.call('HSET', epoch, 'ttl', ARGV[3])
  end
  return {1, ttl_max, slot, tonumber(token), version, row[4], previous or false}
end

local function take_free(overtaken)
  if overtaken > 0 then
    for _, passed in ipairs(redis.call('ZRANGE', queue, 0, overtaken - 1)) do
      redis.call('ZREM', queue, passed)
    end
  end
  if row[1] and limit ~= old_limit then
    resize()
  end
  for slot = 0, math.min(used, limit) - 1 do
    if not slots[slot].owner then
      return take(slot)
    end
    if slots[slot].expires <= now then
      return take(slot, false, 'expired')
    end
  end
  return take(used)
end

local function refuse(by, retry)
  retry = math.max(0, retry, quiet_until - now)
  if tonumber(ARGV[7]) > 0 then
    if not place and redis.call('ZCARD', until_) < PLACES_MAX then
      place = redis.call('INCR', numbers)
      if place == 1 then
        -- Numbers grow like tokens, also where the counter was lost.
        place = now
        redis.call('SET', numbers, int(now))
      end
      redis.call('ZADD', queue, int(place), owner)
    end
    if place then
      redis.call('HSET', places, owner, int(place) .. ' ' .. ARGV[5])
      redis.call('ZADD', until_, int(now + tonumber(ARGV[7])), owner)
    end
  end
  return {0, ttl_max, by or false, retry, place or false, ahead, old_limit}
end

local quiet = now < quiet_until
local live, first, last = 0, nil, nil
for number = 0, used - 1 do
  local slot = slots[number]
  local is_live = slot.owner and slot.expires > now
  if slot.owner == owner and (is_live or not quiet) then
    return take(number, true)
  end
  if is_live then
    live = live + 1
    first = (first and first.expires <= slot.expires) and first or slot
    last = (last and last.expires >= slot.expires) and last or slot
  end
end
if ARGV[8] ~= '' and not quiet then
  for number = 0, used - 1 do
    local slot = slots[number]
    if slot.owner and string.match(slot.owner, '^(.*)/[^/]*$') == ARGV[8] then
      return take(number, false, slot.expires > now and 'resumed' or 'expired')
    end
  end
end

local free = limit - live
if live > 0 and limit ~= old_limit then
  -- Two programs disagree: all slots must be free before the limit may change.
  return refuse(last.owner, last.expires + PASS_AFTER * ahead - now)
end
if free <= 0 then
  return refuse(first.owner, first.expires + PASS_AFTER * ahead - now)
end
if quiet then
  return refuse(nil, quiet_until + PASS_AFTER * ahead - now)
end
if ahead == 0 then
  return take_free(0)
end
local excess = math.max(0, ahead - free + 1)
local turn = math.max(free_since(), quiet_until) + PASS_AFTER * excess
if now >= turn then
  return take_free(excess)
end
return refuse(nil, turn - now)
