-- Make jobs ready now: those that wait for their time, and dead and cancelled ones, which begin again.
--   KEYS  queues
--   ARGV  prefix, ids...
-- Answers 'changed', 'refused' or 'not_found' for each.

-- Let an ended job live again, unless another has its unique key by now.
local function revive(job)
  local unique = K .. 'unique:' .. job.queue
  if job.unique and redis.call('HSETNX', unique, job.unique, job.id) == 0 then
    return 'refused'
  end
  redis.call('HDEL', job.key, 'attempts', 'losses', 'cancel', 'error', 'result', 'progress', 'ended')
  later('ZREM', K .. 'ended', job.id)
  job.losses = 0
  local expires_in = redis.call('HGET', job.key, 'expires_in')
  if expires_in then
    job.expires = now + tonumber(expires_in)
    redis.call('HSET', job.key, 'expires', int(job.expires))
  end
  wait_until(job, now, 'scheduled')
  return 'changed'
end

local answer = {}
for number = 2, #ARGV do
  local job = read_job(ARGV[number])
  local outcome = 'refused'
  if not job then
    outcome = 'not_found'
  elseif job.state == 'ready' then
    outcome = 'changed'
  elseif job.state == 'scheduled' or job.state == 'retrying' then
    leave_line(read_more(job))
    wait_until(job, now, job.state)
    outcome = 'changed'
  elseif job.state == 'dead' or job.state == 'cancelled' then
    outcome = revive(read_more(job))
  end
  answer[#answer + 1] = outcome
end
return commit(answer)
