-- Give claims back unrun: ready at their old place, or later.
--   KEYS  queues
--   ARGV  prefix, then for each job: id, token, delay
-- Answers 'ok' or 'lost' for each.

-- A server out of memory refuses the first write of a script if it could grow, and none after it.
redis.call('HDEL', NUMBERS, '')
local answer = {}
for first = 2, #ARGV, 3 do
  local delay = tonumber(ARGV[first + 2])
  local job, outcome = end_claim(ARGV[first], ARGV[first + 1], 'released')
  if job then
    if job.cancel then
      cancel_job(job, job.cancel, 'settled', outcome)
    elseif delay > 0 then
      wait_until(read_more(job), now + delay, 'scheduled', 'settled', outcome)
    else
      be_ready(read_more(job), 'settled', outcome)
    end
    outcome = 'ok'
  end
  answer[#answer + 1] = outcome
end
return commit(answer)
