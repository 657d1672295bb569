-- End claims whose handler failed.
--   KEYS  queues
--   ARGV  prefix, then for each job: id, token, error, retry in (or nothing for never)
-- Answers 'ok' or 'lost' for each.

-- A server out of memory refuses the first write of a script if it could grow, and none after it.
redis.call('HDEL', NUMBERS, '')
local answer = {}
for first = 2, #ARGV, 4 do
  local error, retry = ARGV[first + 2], tonumber(ARGV[first + 3])
  local job, outcome = end_claim(ARGV[first], ARGV[first + 1], 'failed')
  if job then
    trouble(read_more(job), 'failed', error)
    local attempts = job.attempts + 1
    if job.cancel then
      cancel_job(job, job.cancel, 'settled', outcome, 'attempts', attempts)
    elseif retry then
      wait_until(job, now + retry, 'retrying', 'settled', outcome, 'attempts', attempts,
        'error', error)
    else
      finish(job, 'dead', 'settled', outcome, 'attempts', attempts, 'error', error)
    end
    outcome = 'ok'
  end
  answer[#answer + 1] = outcome
end
return commit(answer)
