-- Sessions of hosts:
--   hosts          when each session that has not ended runs out, by id (sorted set)
--   hosts:started  when it began, by id (sorted set)
--   hosts:ended    when ended ones ended, by id: the proof that an id was used (sorted set)
--   host:<id>      name, ttl, metadata (hash)
--   claimants      sessions that may have claims (set); claims:<id> is of jobs.lua
--   orphaners      those of them that have ended, and whose claims nobody has taken yet (set)
-- Every script has the first as its first key, and what all keys begin with as its first argument:
-- they share a hash tag, so that all of them are where the first is.

-- Ids are random: nobody opens one again after a week.
local ENDED_KEPT = 7 * 86400 * 1000000

local K, HOSTS, now = ARGV[1], KEYS[1], now_us()

local function end_session(id)
  redis.call('ZREM', HOSTS, id)
  redis.call('ZREM', HOSTS .. ':started', id)
  redis.call('DEL', K .. 'host:' .. id)
  redis.call('ZADD', HOSTS .. ':ended', int(now), id)
  redis.call('ZREMRANGEBYSCORE', HOSTS .. ':ended', '-inf', int(now - ENDED_KEPT))
  if redis.call('EXISTS', K .. 'claims:' .. id) == 1 then
    redis.call('SADD', K .. 'orphaners', id)
  else
    redis.call('SREM', K .. 'claimants', id)
  end
end

-- What people are shown of a session: {id, name, ttl, metadata, started, expires}.
local function describe_session(id)
  local row = redis.call('HMGET', K .. 'host:' .. id, 'name', 'ttl', 'metadata')
  return {id, row[1], row[2], row[3], redis.call('ZSCORE', HOSTS .. ':started', id),
    redis.call('ZSCORE', HOSTS, id)}
end

-- How long nothing is claimed after a restart: claimants of before stop within their ttl.
local function note_session_ttl(epoch, ttl)
  local known = redis.call('HMGET', epoch, 'run', 'session_ttl')
  if known[1] and (tonumber(known[2]) or 0) < ttl then
    redis.call('HSET', epoch, 'session_ttl', int(ttl))
  end
end
