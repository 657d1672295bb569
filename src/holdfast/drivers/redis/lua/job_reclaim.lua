-- Take claims from sessions that have ended, or of which nothing is known.
--   KEYS  queues, hosts
--   ARGV  prefix, how many at most
-- Answers {id, queue, state...}.

redis.call('HDEL', NUMBERS, '')
local answer, left = {}, tonumber(ARGV[2])

local function lose(job)
  later('SREM', K .. 'claims:' .. job.session, job.id)
  trouble(read_more(job), 'lost')
  local losses = job.losses + 1
  if job.cancel then
    cancel_job(job, job.cancel, 'losses', losses)
  elseif losses > job.max_losses then
    finish(job, 'dead', 'losses', losses)
  else
    be_ready(job, 'losses', losses)
  end
  answer[#answer + 1] = job.id
  answer[#answer + 1] = job.queue
  answer[#answer + 1] = job.state
end

for _, session in ipairs(redis.call('SMEMBERS', K .. 'claimants')) do
  if left > 0 and not redis.call('ZSCORE', KEYS[2], session) then
    local claims = K .. 'claims:' .. session
    local ids = redis.call('SRANDMEMBER', claims, left)
    for _, id in ipairs(ids) do
      local job = read_job(id)
      if job and job.state == 'claimed' and job.session == session then
        lose(job)
      else
        redis.call('SREM', claims, id)
      end
    end
    if #ids < left then
      redis.call('SREM', K .. 'claimants', session)
    end
    left = left - #ids
  end
end
return commit(answer)
