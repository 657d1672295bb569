-- Add jobs in their order.
--   KEYS  queues
--   ARGV  prefix, then for each job: id, queue, body, priority, delay, due (or nothing), unique key
--         ('=' and the key, or nothing), 'reject' | 'replace' | 'return', largest number of losses,
--         expires in (or nothing), retention
-- Answers {position, entry, id...} of those that were not simply created, counted from 0.
-- Costs about 10 us for each job: the server does nothing else meanwhile.

local WORDS = 11

local modes, known = {}, {}

local function mode_of(queue)
  local mode = modes[queue]
  if mode == nil then
    mode = redis.call('HGET', K .. 'modes', queue)
    modes[queue] = mode
  end
  return mode
end

local function is_any_known()
  local keys = {}
  for first = 2, #ARGV, WORDS do
    keys[#keys + 1] = job_key(ARGV[first])
    if #keys == WORDS_MAX or first + WORDS > #ARGV then
      if redis.call('EXISTS', unpack(keys)) > 0 then
        return true
      end
      keys = {}
    end
  end
  return false
end

-- A live job that has the unique key, which may make way; what becomes of the new one.
local function rival_of(queue, unique, on_duplicate)
  local rival = redis.call('HGET', K .. 'unique:' .. queue, unique)
  if not rival then
    return 'created'
  end
  if on_duplicate == 'return' then
    return 'existing', rival
  end
  -- What was kept back may be about the rival.
  flush()
  local job = read_job(rival)
  if on_duplicate == 'reject' or job.state == 'claimed' then
    return 'rejected', rival
  end
  leave_line(job)
  finish(job, 'cancelled')
  flush()
  return 'replaced'
end

local function add(first, number)
  local id, queue, body, priority, delay, due, unique, on_duplicate, max_losses, expires,
    retention = unpack(ARGV, first, first + WORDS - 1)
  local job = {
    id = id, key = job_key(id), queue = queue, number = int(number), seq = int(number),
    priority = tonumber(priority),
  }
  due = due == '' and now + tonumber(delay) or tonumber(due)
  job.state = due > now and 'scheduled' or 'ready'
  local fields = {'queue', queue, 'state', job.state, 'number', job.number, 'enqueued', int(now),
    'due', int(due), 'retention', retention}
  local function put(name, value)
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  if job.priority ~= 0 then
    put('priority', priority)
  end
  if tonumber(max_losses) ~= MAX_LOSSES then
    put('max_losses', max_losses)
  end
  if unique ~= '' then
    unique = string.sub(unique, 2)
    put('unique', unique)
    redis.call('HSET', K .. 'unique:' .. queue, unique, id)
  end
  if expires ~= '' then
    -- Kept as it was asked for, because a job that is retried begins again.
    put('expires_in', expires)
    put('expires', int(now + tonumber(expires)))
    later('ZADD', K .. 'expiring', int(now + tonumber(expires)), id)
  end
  redis.call('HSET', job.key, unpack(fields))
  redis.call('SET', K .. 'body:' .. id, body)
  later('ZADD', index_of(job.state, queue), job.number, id)
  if job.state == 'ready' then
    later('ZADD', K .. 'ready:' .. queue, -job.priority, place(number, id))
    fresh[queue] = (fresh[queue] or 0) + 1
  else
    later('ZADD', K .. 'due:' .. queue, int(due), place(number, id))
  end
  if not known[queue] then
    known[queue] = true
    redis.call('ZADD', QUEUES, 0, queue)
  end
end

local answer = {}
local some_known, seen = is_any_known(), {}
-- The first write: a server out of memory refuses it, and with it all that follows.
local number = redis.call('HINCRBY', NUMBERS, 'job', (#ARGV - 1) / WORDS) - (#ARGV - 1) / WORDS

for first = 2, #ARGV, WORDS do
  local id, queue, unique = ARGV[first], ARGV[first + 1], ARGV[first + 6]
  local entry, standing = 'created', id
  number = number + 1
  if not (seen[id] or (some_known and redis.call('EXISTS', job_key(id)) == 1)) then
    if mode_of(queue) == 'draining' then
      entry = 'closed'
    elseif unique ~= '' then
      entry, standing = rival_of(queue, string.sub(unique, 2), ARGV[first + 7])
    end
    if entry == 'created' or entry == 'replaced' then
      seen[id] = true
      add(first, number)
    end
  end
  if entry ~= 'created' then
    answer[#answer + 1] = (first - 2) / WORDS
    answer[#answer + 1] = entry
    answer[#answer + 1] = standing or id
  end
end
return commit(answer)
