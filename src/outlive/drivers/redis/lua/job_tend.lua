-- End jobs whose expiry passed, and forget those whose retention did.
--   KEYS  queues
--   ARGV  prefix, how many to end at most, how many to forget at most
-- Answers {ended, forgotten}.

-- A server out of memory refuses the first write of a script if it could grow, and none after it.
redis.call('HDEL', NUMBERS, '')

-- Each id of a sorted set whose instant has passed, and its job if there is one.
local function each_past(name, most, act)
  local ids = redis.call('ZRANGEBYSCORE', K .. name, '-inf', now_text, 'LIMIT', 0, most)
  for _, id in ipairs(ids) do
    later('ZREM', K .. name, id)
    local job = read_job(id)
    if job then
      act(job)
    end
  end
  return #ids
end

local expired = each_past('expiring', ARGV[2], function(job)
  expire_job(read_more(job))
end)
local forgotten = each_past('ended', ARGV[3], forget)
return commit({expired, forgotten})
