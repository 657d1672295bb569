-- Claim jobs that are ready or due, for a session that lives.
--   KEYS  queues, hosts, epoch
--   ARGV  prefix, session, host to ring, worker, request, limit, this job alone ('=' and its id, or
--         nothing), whether it is asked again ('1' or nothing), wait, whether one may be a suspect
--         ('1' or nothing), then for each wanted queue its name, how many of it and the largest
--         number of losses that its jobs have from now on (or nothing)
-- Answers {'fenced'}, {'expired'}, {'unknown'} where the epoch has to be told first, or
--   {'ok', next due in us or nothing, job...}, each with id, queue, token, body, attempts, losses
--   and when it was enqueued.

-- Jobs that came due are made ready by claims, and no claim pays for all of a large crowd.
local PROMOTE_MAX = 1000
-- As many jobs past their expiry are ended by one claim on its way.
local EXPIRED_MAX = 1000

local WANTS, WORDS = 11, 3

local session, host, worker, request = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local limit, target, again, wait = tonumber(ARGV[6]), ARGV[7], ARGV[8] == '1', tonumber(ARGV[9])
local suspects = ARGV[10] == '1'

local alive_until = redis.call('ZSCORE', KEYS[2], session)
if not alive_until then
  return {'fenced'}
end
if tonumber(alive_until) <= now then
  return {'expired'}
end
local age = redis.call('HMGET', KEYS[3], 'run', 'claims_until')
if not age[1] then
  return {'unknown'}
end

local answer = {'ok', false}
local bodies = {}

local function give(id, queue, token, attempts, losses, enqueued)
  local size = #answer
  bodies[#bodies + 1] = K .. 'body:' .. id
  -- The body is put in its place when all of them are read together.
  answer[size + 1], answer[size + 2], answer[size + 3], answer[size + 4], answer[size + 5],
    answer[size + 6], answer[size + 7] = id, queue, token, false, attempts or '0', losses or '0',
    enqueued
end

local function with_bodies()
  if #bodies > 0 then
    for number, body in ipairs(redis.call('MGET', unpack(bodies))) do
      answer[7 * number - 1] = body
    end
  end
  return answer
end

local function give_again()
  local mine = {}
  for _, id in ipairs(redis.call('SMEMBERS', K .. 'claims:' .. session)) do
    local row = redis.call('HMGET', job_key(id), 'claim', 'queue', 'token', 'attempts', 'losses',
      'enqueued')
    if row[1] and cjson.decode(row[1]).request == request then
      mine[#mine + 1] = {tonumber(row[3]), id, row}
    end
  end
  -- Tokens were given in the order of the first answer.
  table.sort(mine, function(one, other) return one[1] < other[1] end)
  for _, found in ipairs(mine) do
    local row = found[3]
    give(found[2], row[2], found[1], row[4], row[5], row[6])
  end
  return #mine
end

if again and give_again() > 0 then
  return with_bodies()
end
-- Until then, claimants from before a restart may go on with what the store has forgotten.
local quiet_us = (tonumber(age[2]) or 0) - now
if quiet_us > 0 then
  answer[2] = quiet_us
  return answer
end

local claim = cjson.encode({worker = worker, host = host, request = request, at = now_text})
local taken, expired = 0, 0

-- Claim jobs of a queue that have left its line, unless their time to be claimed has passed.
local function take(queue, ids, max_losses)
  local claimed, numbered = {}, {}
  for _, id in ipairs(ids) do
    local key = job_key(id)
    local row = redis.call('HMGET', key, 'number', 'enqueued', 'token', 'expires', 'attempts',
      'losses', 'max_losses')
    if row[4] and tonumber(row[4]) <= now then
      expire_job(read_more(read_job(id)))
      expired = expired + 1
    elseif row[1] then
      -- Greater than all before, also where the record of them was lost.
      local token = now + taken
      if row[3] and tonumber(row[3]) >= token then
        token = tonumber(row[3]) + 1
      end
      taken = taken + 1
      redis.call('HSET', key, 'state', 'claimed', 'token', int(token), 'session', session,
        'claim', claim)
      if max_losses and max_losses ~= (tonumber(row[7]) or USUAL_LOSSES) then
        redis.call('HSET', key, 'max_losses', int(max_losses))
      end
      local size = #claimed
      claimed[size + 1] = id
      numbered[2 * size + 1], numbered[2 * size + 2] = row[1], id
      if row[4] then
        later('ZREM', K .. 'expiring', id)
      end
      give(id, queue, token, row[5], row[6], row[2])
    end
  end
  if #claimed > 0 then
    redis.call('ZREM', index_of('ready', queue), unpack(claimed))
    redis.call('ZADD', index_of('claimed', queue), unpack(numbered))
    redis.call('SADD', K .. 'claims:' .. session, unpack(claimed))
  end
  return #claimed
end

-- A server out of memory refuses the first write of a script if it could grow, and none after it:
-- what it has can be claimed, and makes room when it is done.
local function begin_writing()
  redis.call('HDEL', NUMBERS, '')
end

local function promote(queue)
  local due = redis.call('ZRANGEBYSCORE', K .. 'due:' .. queue, '-inf', now_text, 'LIMIT', 0,
    PROMOTE_MAX)
  if #due == 0 then
    return
  end
  begin_writing()
  for _, place_ in ipairs(due) do
    local job = read_job(id_at(place_))
    if job then
      leave_line(read_more(job))
      job.seq = int(next_number())
      be_ready(job)
    else
      redis.call('ZREM', K .. 'due:' .. queue, place_)
    end
  end
  flush()
end

local function take_from(queue, most, max_losses)
  promote(queue)
  while suspects and most > 0 do
    local found = redis.call('ZPOPMIN', K .. 'suspects:' .. queue)
    if #found == 0 then
      break
    end
    local count = take(queue, {id_at(found[1])}, max_losses)
    most, suspects = most - count, count == 0
  end
  while most > 0 and expired < EXPIRED_MAX do
    local found = redis.call('ZPOPMIN', K .. 'ready:' .. queue, most)
    if #found == 0 then
      return
    end
    local ids = {}
    for number = 1, #found, 2 do
      ids[#ids + 1] = id_at(found[number])
    end
    most = most - take(queue, ids, max_losses)
  end
end

-- Whether a job that is named may be had from a queue, of those wanted if any are; and the largest
-- number of losses that it has then.
local function admits(queue)
  for number = WANTS, #ARGV, WORDS do
    if ARGV[number] == queue then
      return true, tonumber(ARGV[number + 2])
    end
  end
  return #ARGV < WANTS
end

local function take_target(id)
  local job = read_job(id)
  if not job or FINAL[job.state] or job.state == 'claimed' or limit < 1 then
    return
  end
  local admitted, max_losses = admits(job.queue)
  if not admitted then
    return
  end
  if redis.call('HGET', K .. 'modes', job.queue) == 'paused' then
    return
  end
  read_more(job)
  if job.state ~= 'ready' then
    if tonumber(job.due) > now then
      return
    end
    -- Claimed by its id before anybody came by to make it ready.
    begin_writing()
    leave_line(job)
    job.seq = int(next_number())
    be_ready(job)
    flush()
  end
  redis.call('ZREM', line_of(job), place(job.seq, id))
  take(job.queue, {id}, max_losses)
end

local function note_wish()
  for number = WANTS, #ARGV, WORDS do
    local waiting = K .. 'waiting:' .. ARGV[number]
    redis.call('ZREMRANGEBYSCORE', waiting, '-inf', now_text)
    redis.call('ZADD', waiting, int(now + wait), host)
  end
end

local function next_due_us()
  local first
  for number = WANTS, #ARGV, WORDS do
    local found = redis.call('ZRANGE', K .. 'due:' .. ARGV[number], 0, 0, 'WITHSCORES')
    if found[2] and not (first and first <= tonumber(found[2]))
      and redis.call('HGET', K .. 'modes', ARGV[number]) ~= 'paused'
    then
      first = tonumber(found[2])
    end
  end
  return first and math.max(0, first - now) or false
end

if target ~= '' then
  take_target(string.sub(target, 2))
else
  for number = WANTS, #ARGV, WORDS do
    if taken < limit and redis.call('HGET', K .. 'modes', ARGV[number]) ~= 'paused' then
      take_from(ARGV[number], math.min(tonumber(ARGV[number + 1]), limit - taken),
        tonumber(ARGV[number + 2]))
    end
  end
end
-- Others hear of what this claim left to them, before its own wish is noted.
commit()
if taken < limit then
  answer[2] = next_due_us()
  if wait > 0 then
    note_wish()
  end
end
return with_bodies()
