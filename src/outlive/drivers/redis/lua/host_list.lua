-- Sessions that have not ended, oldest first.
--   KEYS  hosts
--   ARGV  prefix, how many at most
-- Answers {now, session...}.

local answer = {now}
for _, id in ipairs(redis.call('ZRANGE', HOSTS .. ':started', 0, tonumber(ARGV[2]) - 1)) do
  answer[#answer + 1] = describe_session(id)
end
return answer
