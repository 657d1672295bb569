-- End live jobs as cancelled: at once, or by way of their claimants.
--   KEYS  queues
--   ARGV  prefix, reason as JSON, ids...
-- Answers 'changed', 'requested', 'refused' or 'not_found' for each.

-- A server out of memory refuses the first write of a script if it could grow, and none after it.
redis.call('HDEL', NUMBERS, '')
local answer = {}
for number = 3, #ARGV do
  local job = read_job(ARGV[number])
  local outcome = 'not_found'
  if job and job.state == 'claimed' then
    outcome = 'requested'
    redis.call('HSETNX', job.key, 'cancel', ARGV[2])
    redis.call('PUBLISH', K .. 'bell:' .. read_more(job).claim.host, '0 0 cancel/' .. job.id)
  elseif job then
    if not FINAL[job.state] then
      leave_line(read_more(job))
      cancel_job(job, ARGV[2])
    end
    -- Asked again after a lost reply, it is as was wished.
    outcome = job.state == 'cancelled' and 'changed' or 'refused'
  end
  answer[#answer + 1] = outcome
end
return commit(answer)
