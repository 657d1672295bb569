-- Add jobs in their order.
--   KEYS  queues
--   ARGV  prefix, then for each job: id, queue, body, priority, delay, due (or nothing), unique key
--         ('=' and the key, or nothing), 'reject' | 'replace' | 'return', largest number of losses,
--         expires in (or nothing), retention
-- Answers {position, entry, id...} of those that were not simply created, counted from 0.
-- Costs about 20 us for each job: the server does nothing else meanwhile.

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

-- A live job that has the unique key, which may make way; what becomes of the new one. One that
-- nobody claimed in time lives no more.
local function rival_of(queue, unique, on_duplicate)
  local rival = redis.call('HGET', K .. 'unique:' .. queue, unique)
  if not rival then
    return 'created'
  end
  -- What was kept back may be about the rival.
  flush()
  local job = read_job(rival)
  if job and job.state ~= 'claimed' and job.expires and job.expires <= now then
    expire_job(read_more(job))
    flush()
    return 'created'
  end
  if on_duplicate == 'return' then
    return 'existing', rival
  end
  if on_duplicate == 'reject' or job.state == 'claimed' then
    return 'rejected', rival
  end
  leave_line(read_more(job))
  finish(job, 'cancelled')
  flush()
  return 'replaced'
end

local function is_usual(first)
  return ARGV[first + 3] == '0' and ARGV[first + 4] == '0' and ARGV[first + 5] == ''
    and ARGV[first + 6] == '' and tonumber(ARGV[first + 8]) == USUAL_LOSSES
    and ARGV[first + 9] == '' and tonumber(ARGV[first + 10]) == USUAL_RETENTION
end

-- What is not as usual.
local function more_fields(first, due)
  local priority, retention = ARGV[first + 3], ARGV[first + 10]
  local unique, max_losses, expires = ARGV[first + 6], ARGV[first + 8], ARGV[first + 9]
  local fields = {'due', int(due)}
  local function put(name, value)
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  if priority ~= '0' then
    put('priority', priority)
  end
  if tonumber(retention) ~= USUAL_RETENTION then
    put('retention', retention)
  end
  if tonumber(max_losses) ~= USUAL_LOSSES then
    put('max_losses', max_losses)
  end
  if unique ~= '' then
    put('unique', string.sub(unique, 2))
  end
  if expires ~= '' then
    -- Kept as it was asked for, because a job that is retried begins again.
    put('expires_in', expires)
    put('expires', int(now + tonumber(expires)))
  end
  return fields
end

local function add(first, number)
  local id, queue = ARGV[first], ARGV[first + 1]
  local priority, delay, due = ARGV[first + 3], tonumber(ARGV[first + 4]), tonumber(ARGV[first + 5])
  local unique, expires = ARGV[first + 6], tonumber(ARGV[first + 9])
  due = due or now + delay
  local key, digits = job_key(id), int(number)
  local state = due > now and 'scheduled' or 'ready'
  redis.call('HSET', key, 'queue', queue, 'state', state, 'number', digits, 'enqueued', now_text)
  if not is_usual(first) then
    redis.call('HSET', key, unpack(more_fields(first, due)))
  end
  if unique ~= '' then
    redis.call('HSET', K .. 'unique:' .. queue, string.sub(unique, 2), id)
  end
  if expires then
    later('ZADD', K .. 'expiring', int(now + expires), id)
  end
  redis.call('SET', K .. 'body:' .. id, ARGV[first + 2])
  later('ZADD', index_of(state, queue), digits, id)
  later('ZADD', K .. 'jobs', digits, id)
  if state == 'ready' then
    later('ZADD', K .. 'ready:' .. queue, -tonumber(priority), place(number, id))
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
  local home = seen[id] or (some_known and redis.call('HGET', job_key(id), 'queue'))
  if home then
    -- The same job, unless somebody uses the id in another queue.
    entry = home == queue and 'existing' or 'conflict'
  else
    if mode_of(queue) == 'draining' then
      entry = 'closed'
    elseif unique ~= '' then
      entry, standing = rival_of(queue, string.sub(unique, 2), ARGV[first + 7])
    end
    if entry == 'created' or entry == 'replaced' then
      seen[id] = queue
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
