-- End sessions whose time has run out.
--   KEYS  hosts
--   ARGV  prefix, how many at most
-- Answers {now, session...}, as they were.

local answer = {now}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', HOSTS, '-inf', int(now), 'LIMIT', 0, ARGV[2])) do
  answer[#answer + 1] = describe_session(id)
  end_session(id)
end
return answer
