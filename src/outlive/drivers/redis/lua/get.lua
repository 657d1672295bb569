-- The records of one key, and its history if asked for.
--   KEYS  lease, until, history
--   ARGV  how many ended grants
-- Answers {now, records or nothing, ended grants}.

local now = now_us()
local ended = {}
if ARGV[1] ~= '0' then
  ended = redis.call('LRANGE', KEYS[3], 0, tonumber(ARGV[1]) - 1)
end
return {now, describe(KEYS[1], KEYS[2], now, false, '') or false, ended}
