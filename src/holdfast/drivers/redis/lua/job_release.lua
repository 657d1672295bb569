-- Give claims back unrun: ready at their old place, or later.
--   KEYS  queues
--   ARGV  prefix, then for each job: id, token, delay
-- Answers 'ok' or 'lost' for each.

-- A server out of memory refuses the first write of a script if it could grow, and none after it.
redis.call('HDEL', NUMBERS, '')
local answer = {}
for first = 2, #ARGV, 3 do
  local delay = tonumber(ARGV[first + 2])
  local job, outcome = claim_of(ARGV[first], ARGV[first + 1], 'released')
  if job then
    outcome = 'ok'
    if job.cancel then
      cancel_job(job, job.cancel, 'settled', 'released')
    elseif delay > 0 then
      wait_until(job, now + delay, 'scheduled', 'settled', 'released')
    else
      be_ready(job, 'settled', 'released')
    end
  end
  answer[#answer + 1] = outcome
end
return commit(answer)
