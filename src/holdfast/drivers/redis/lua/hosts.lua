-- Sessions of hosts, in three sorted sets and a hash for each:
--   hosts          when each session that has not ended runs out, by id
--   hosts:started  when it began, by id
--   hosts:ended    when ended ones ended, by id: the proof that an id was used
--   host:<id>      name, ttl, metadata
-- All keys of a namespace share a hash tag, so that those named here are where the first one is.

-- Ids are random: nobody opens one again after a week.
local ENDED_KEPT = 7 * 86400 * 1000000

local function end_session(hosts, id, now)
  redis.call('ZREM', hosts, id)
  redis.call('ZREM', hosts .. ':started', id)
  redis.call('DEL', string.sub(hosts, 1, -2) .. ':' .. id)
  redis.call('ZADD', hosts .. ':ended', int(now), id)
  redis.call('ZREMRANGEBYSCORE', hosts .. ':ended', '-inf', int(now - ENDED_KEPT))
end

-- What people are shown of a session: {id, name, ttl, metadata, started, expires}.
local function describe_session(hosts, id)
  local row = redis.call('HMGET', string.sub(hosts, 1, -2) .. ':' .. id, 'name', 'ttl', 'metadata')
  return {id, row[1], row[2], row[3], redis.call('ZSCORE', hosts .. ':started', id),
    redis.call('ZSCORE', hosts, id)}
end

-- How long nothing is claimed after a restart: claimants of before stop within their ttl.
local function note_session_ttl(epoch, ttl)
  local known = redis.call('HMGET', epoch, 'run', 'session_ttl')
  if known[1] and (tonumber(known[2]) or 0) < ttl then
    redis.call('HSET', epoch, 'session_ttl', int(ttl))
  end
end
