-- End sessions whose time has run out.
--   KEYS  hosts
--   ARGV  how many at most
-- Answers {now, session...}, as they were.

local hosts = KEYS[1]
local now = now_us()
local answer = {now}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', hosts, '-inf', int(now), 'LIMIT', 0, ARGV[1])) do
  answer[#answer + 1] = describe_session(hosts, id)
  end_session(hosts, id, now)
end
return answer
