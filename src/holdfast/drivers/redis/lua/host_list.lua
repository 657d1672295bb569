-- Sessions that have not ended, oldest first.
--   KEYS  hosts
--   ARGV  how many at most
-- Answers {now, session...}.

local answer = {now_us()}
for _, id in ipairs(redis.call('ZRANGE', KEYS[1] .. ':started', 0, tonumber(ARGV[1]) - 1)) do
  answer[#answer + 1] = describe_session(KEYS[1], id)
end
return answer
