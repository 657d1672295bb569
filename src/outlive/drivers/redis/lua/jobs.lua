-- What the scripts of jobs share: where things are, and how a job passes from state to state.
--   job:<id>               what a script looks at (hash); fields at their default are missing
--   body:<id>              what no script looks into: payload, headers and the like (string)
--   troubles:<id>          what went wrong, the newest first (list)
--   jobs, jobs:<state>:<queue>   ids by the number of their enqueueing (sorted sets)
--   ready:<queue>          who can be claimed: by -priority, and equal ones by place (sorted set)
--   suspects:<queue>       those of them that were lost so often that each host runs one at a time:
--                          by their losses (sorted set)
--   due:<queue>            scheduled and retrying ones by their time (sorted set)
--   unique:<queue>         the live job of each unique key (hash)
--   waiting:<queue>        hosts that want to be rung, by the end of their waiting (sorted set)
--   claims:<session>       ids of its claimed jobs (set); hosts.lua has whose they may be
--   expiring, ended        ids by their expiry, and by the end of their retention (sorted sets)
--   modes                  the mode of each queue with settings (hash); queues: all names
--   numbers:jobs           the last number given out (hash)
-- Every script has the queues as its first key, and what all keys begin with as its first argument:
-- they share a hash tag, so that all of them are where the first is.

local K, now = ARGV[1], now_us()
local now_text = int(now)
local QUEUES, NUMBERS = K .. 'queues', K .. 'numbers:jobs'
local STATES = {'scheduled', 'ready', 'claimed', 'retrying', 'done', 'dead', 'cancelled'}
local FINAL = {done = true, dead = true, cancelled = true}

-- Lua hands over no more than some thousand words at once.
local WORDS_MAX = 4000

-- Changes of sets that are kept back and sent together: a call costs more than what it does. A job
-- is judged by its hash alone, which is written at once.
local batches, of_command = {}, {}

local function later(command, key, first, second)
  local of_key = of_command[command]
  if not of_key then
    of_key = {}
    of_command[command] = of_key
  end
  local batch = of_key[key]
  if not batch then
    batch = {command, key}
    of_key[key] = batch
    batches[#batches + 1] = batch
  end
  local size = #batch
  batch[size + 1], batch[size + 2] = first, second
end

local function flush()
  for _, batch in ipairs(batches) do
    local command, key = batch[1], batch[2]
    for first = 3, #batch, WORDS_MAX do
      redis.call(command, key, unpack(batch, first, math.min(#batch, first + WORDS_MAX - 1)))
    end
  end
  batches, of_command = {}, {}
end

local function job_key(id)
  return K .. 'job:' .. id
end

local indexes = {}

local function index_of(state, queue)
  local of_state = indexes[state]
  if not of_state then
    of_state = {}
    indexes[state] = of_state
  end
  local key = of_state[queue]
  if not key then
    key = K .. 'jobs:' .. state .. ':' .. queue
    of_state[queue] = key
  end
  return key
end

-- Where a job stands among others of the same score, which are sorted by their bytes: a double
-- would not hold priority and number together.
local function place(number, id)
  return string.format('%016.0f', number) .. id
end

local function id_at(place_)
  return string.sub(place_, 17)
end

local function next_number()
  return redis.call('HINCRBY', NUMBERS, 'job', 1)
end

-- What every change of a job looks at; read_more has the rest.
local function read_job(id)
  local key = job_key(id)
  local row = redis.call('HMGET', key, 'queue', 'state', 'number', 'token', 'session', 'settled',
    'unique', 'expires', 'retention', 'cancel')
  if not row[1] then
    return nil
  end
  return {
    id = id, key = key, queue = row[1], state = row[2], number = row[3], token = row[4],
    session = row[5], settled = row[6], unique = row[7], expires = tonumber(row[8]),
    retention = tonumber(row[9]) or USUAL_RETENTION, cancel = row[10],
  }
end

local function read_more(job)
  local row = redis.call('HMGET', job.key, 'seq', 'priority', 'due', 'attempts', 'losses',
    'max_losses', 'claim')
  job.seq, job.priority, job.due = row[1] or job.number, tonumber(row[2]) or 0, row[3]
  job.attempts, job.losses = tonumber(row[4]) or 0, tonumber(row[5]) or 0
  job.max_losses = tonumber(row[6]) or USUAL_LOSSES
  job.claim = row[7] and cjson.decode(row[7]) or {}
  return job
end

-- How many jobs became claimable in each queue, and queues that lost a job.
local fresh, shrunk = {}, {}

local function set_state(job, state)
  if job.state then
    later('ZREM', index_of(job.state, job.queue), job.id)
  end
  later('ZADD', index_of(state, job.queue), job.number, job.id)
  job.state = state
end

-- The line in which a ready job stands.
local function line_of(job)
  return K .. (job.losses >= SUSPECT_LOSSES and 'suspects:' or 'ready:') .. job.queue
end

-- How many jobs of a queue can be claimed.
local function count_claimable(queue)
  return redis.call('ZCARD', K .. 'ready:' .. queue) + redis.call('ZCARD', K .. 'suspects:' .. queue)
end

-- Out of the line of those who can be claimed, or wait for their time.
local function leave_line(job)
  if job.state == 'ready' then
    later('ZREM', line_of(job), place(job.seq, job.id))
  elseif job.state == 'scheduled' or job.state == 'retrying' then
    later('ZREM', K .. 'due:' .. job.queue, place(job.number, job.id))
  end
end

-- Let a job be claimed at the place its number gives it; more fields to write may follow.
local function be_ready(job, ...)
  redis.call('HSET', job.key, 'state', 'ready', 'seq', job.seq, ...)
  set_state(job, 'ready')
  local suspect = job.losses >= SUSPECT_LOSSES
  later('ZADD', line_of(job), suspect and job.losses or -job.priority, place(job.seq, job.id))
  if job.expires then
    later('ZADD', K .. 'expiring', int(job.expires), job.id)
  end
  fresh[job.queue] = (fresh[job.queue] or 0) + 1
end

-- Let a job wait in a state until its time, or be ready at once if that has passed.
local function wait_until(job, due, state, ...)
  if due <= now then
    job.seq = next_number()
    be_ready(job, 'due', int(due), ...)
    return
  end
  redis.call('HSET', job.key, 'state', state, 'due', int(due), ...)
  set_state(job, state)
  later('ZADD', K .. 'due:' .. job.queue, int(due), place(job.number, job.id))
  if job.expires then
    later('ZADD', K .. 'expiring', int(job.expires), job.id)
  end
end

local function forget(job)
  redis.call('DEL', job.key, K .. 'body:' .. job.id, K .. 'troubles:' .. job.id)
  later('ZREM', index_of(job.state, job.queue), job.id)
  later('ZREM', K .. 'jobs', job.id)
  shrunk[job.queue] = true
end

-- End a live job, which has left its line or its claim: its unique key is free again.
local function finish(job, state, ...)
  if job.unique then
    redis.call('HDEL', K .. 'unique:' .. job.queue, job.unique)
  end
  if job.expires then
    later('ZREM', K .. 'expiring', job.id)
  end
  if job.retention == 0 then
    forget(job)
    job.state = state
    return
  end
  redis.call('HSET', job.key, 'state', state, 'ended', now_text, ...)
  later('ZADD', K .. 'ended', int(now + job.retention), job.id)
  set_state(job, state)
end

local function cancel_job(job, reason, ...)
  finish(job, 'cancelled', 'error', reason, ...)
end

-- Keep that something went wrong.
local function trouble(job, outcome, error)
  local claimed = outcome ~= 'expired'
  local entry = cjson.encode({
    job.token or '0', outcome, claimed and job.claim.worker or cjson.null,
    claimed and job.claim.at or cjson.null, now_text, error or cjson.null,
  })
  redis.call('LPUSH', K .. 'troubles:' .. job.id, entry)
  redis.call('LTRIM', K .. 'troubles:' .. job.id, 0, ATTEMPTS_KEPT - 1)
end

local function expire_job(job)
  leave_line(job)
  trouble(job, 'expired')
  local within = tonumber(redis.call('HGET', job.key, 'expires_in')) / 1e6
  local why = string.format('expired: not claimed within %g s', within)
  finish(job, 'dead', 'error', redis.call('HGET', job.key, 'error') or cjson.encode(why))
end

-- Ends the claim with this token, if it stands: its job, and how that is written. If it does not,
-- nothing, and whether it has ended in this way before.
local function end_claim(id, token, outcome)
  local job = read_job(id)
  if not job or job.token ~= token then
    return nil, 'lost'
  end
  local settled = outcome .. ' ' .. token
  if job.state == 'claimed' then
    later('SREM', K .. 'claims:' .. job.session, id)
    return job, settled
  end
  return nil, job.settled == settled and 'ok' or 'lost'
end

-- Ring hosts that wait for so many jobs: one more than jobs, in case one has no room. That is the one
-- who asked last: those whose notes end first may have died.
local function ring(queue, jobs)
  local waiting = K .. 'waiting:' .. queue
  if jobs > 0 and redis.call('EXISTS', waiting) == 1
    and redis.call('HGET', K .. 'modes', queue) ~= 'paused'
  then
    redis.call('ZREMRANGEBYSCORE', waiting, '-inf', now_text)
    local hosts = redis.call('ZRANGE', waiting, 0, jobs - 1)
    local last = redis.call('ZRANGE', waiting, -1, -1)[1]
    if last and last ~= hosts[#hosts] then
      hosts[#hosts + 1] = last
    end
    for _, host in ipairs(hosts) do
      redis.call('ZREM', waiting, host)
      redis.call('PUBLISH', K .. 'bell:' .. host, '0 0 work/' .. queue)
    end
  end
end

-- Ring hosts that wait for what became claimable.
local function ring_waiting()
  for queue, count in pairs(fresh) do
    ring(queue, math.min(count, count_claimable(queue)))
  end
  fresh = {}
end

-- A queue is known as long as it has jobs or settings.
local function drop_empty_queues()
  for queue in pairs(shrunk) do
    local keys = {}
    for number, state in ipairs(STATES) do
      keys[number] = index_of(state, queue)
    end
    if redis.call('EXISTS', unpack(keys)) == 0
      and redis.call('HEXISTS', K .. 'modes', queue) == 0
    then
      redis.call('ZREM', QUEUES, queue)
    end
  end
end

-- The end of every script that changes jobs.
local function commit(answer)
  flush()
  drop_empty_queues()
  ring_waiting()
  return answer
end
