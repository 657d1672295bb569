-- Take claims from sessions that have ended, or of which nothing is known.
--   KEYS  queues, hosts
--   ARGV  prefix, how many at most
-- Answers {id, queue, state...}.

-- How many sessions a call looks at: a fleet of this size is looked at as a whole.
local SAMPLE = 20

-- A server out of memory refuses the first write of a script if it could grow, and none after it.
redis.call('HDEL', NUMBERS, '')
local answer, left = {}, tonumber(ARGV[2])

local function lose(job)
  later('SREM', K .. 'claims:' .. job.session, job.id)
  trouble(read_more(job), 'lost')
  local losses = job.losses + 1
  job.losses = losses
  if job.cancel then
    cancel_job(job, job.cancel, 'losses', losses)
  elseif losses > job.max_losses then
    local why = string.format('lost too often: losses %d, max_losses %d, last host %s', losses,
      job.max_losses, job.claim.worker or '')
    finish(job, 'dead', 'losses', losses, 'error', cjson.encode(why))
  else
    be_ready(job, 'losses', losses)
  end
  answer[#answer + 1] = job.id
  answer[#answer + 1] = job.queue
  answer[#answer + 1] = job.state
end

-- Give up to so many claims of a session back; it is forgotten when it has no more.
local function take_from(session)
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
    redis.call('SREM', K .. 'orphaners', session)
  end
  left = left - #ids
end

for _, session in ipairs(redis.call('SRANDMEMBER', K .. 'orphaners', left)) do
  if left > 0 then
    take_from(session)
  end
end
-- A session ends by a script that leaves a note of its claims. Where its record was removed by
-- other means there is none: every call looks at some of all sessions, so that this is found too.
for _, session in ipairs(redis.call('SRANDMEMBER', K .. 'claimants', SAMPLE)) do
  if left > 0 and not redis.call('ZSCORE', KEYS[2], session) then
    take_from(session)
  end
end
return commit(answer)
