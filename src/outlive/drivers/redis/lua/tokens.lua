-- Bearer tokens and the log of admin acts; the first argument says what is wanted.
--   KEYS  bearers (ids by creation), digests (digest to id), acts (newest first),
--         prefix of a bearer
--   ARGV  create id name digest scopes ttl|'' actor kept acts_max
--         find digest
--         list limit
--         revoke id actor acts_max
--         record actor action subject acts_max
-- A bearer is a hash: name, digest, scopes, created, expires, revoked. Its end is a date in UTC.

local bearers, digests, acts, prefix = unpack(KEYS)
local op = ARGV[1]
local now = now_us()

local function note(actor, action, subject, most)
  redis.call('LPUSH', acts, cjson.encode({int(now), actor, action, subject}))
  redis.call('LTRIM', acts, 0, most - 1)
end

local function shown(id)
  local row = redis.call('HMGET', prefix .. id, 'name', 'digest', 'scopes', 'created', 'expires',
    'revoked')
  local active = not row[6] and (not row[5] or tonumber(row[5]) > now)
  return {id, row[1], row[2], row[3], row[4], row[5], row[6], active and 1 or 0}
end

local function forget(before)
  for _, id in ipairs(redis.call('ZRANGE', bearers, 0, -1)) do
    local row = redis.call('HMGET', prefix .. id, 'expires', 'revoked', 'digest')
    local ended = math.min(tonumber(row[1]) or math.huge, tonumber(row[2]) or math.huge)
    if ended < before then
      redis.call('DEL', prefix .. id)
      redis.call('HDEL', digests, row[3])
      redis.call('ZREM', bearers, id)
    end
  end
end

if op == 'create' then
  local id = ARGV[2]
  if redis.call('EXISTS', prefix .. id) == 1 then
    return {}
  end
  forget(now - tonumber(ARGV[8]))
  redis.call('HSET', prefix .. id, 'name', ARGV[3], 'digest', ARGV[4], 'scopes', ARGV[5],
    'created', int(now))
  if ARGV[6] ~= '' then
    redis.call('HSET', prefix .. id, 'expires', int(now + tonumber(ARGV[6])))
  end
  redis.call('HSET', digests, ARGV[4], id)
  redis.call('ZADD', bearers, int(now), id)
  note(ARGV[7], 'token create', id, tonumber(ARGV[9]))
  return {}
end
if op == 'find' then
  local id = redis.call('HGET', digests, ARGV[2])
  return id and {shown(id)} or {}
end
if op == 'list' then
  local found = {}
  for _, id in ipairs(redis.call('ZREVRANGE', bearers, 0, tonumber(ARGV[2]) - 1)) do
    found[#found + 1] = shown(id)
  end
  return found
end
if op == 'revoke' then
  local id = ARGV[2]
  if redis.call('EXISTS', prefix .. id) == 0 then
    return {}
  end
  if redis.call('HSETNX', prefix .. id, 'revoked', int(now)) == 1 then
    note(ARGV[3], 'token revoke', id, tonumber(ARGV[4]))
  end
  return {shown(id)}
end
note(ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]))
return {}
