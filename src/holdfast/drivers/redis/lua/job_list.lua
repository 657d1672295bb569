-- A part of a listing, in order of enqueueing: looks at some jobs and gives those that pass.
--   KEYS  queues
--   ARGV  prefix, behind which number, how many are wanted, how many to look at, queue ('=' and
--         its name, or nothing for all), unique key, session (the same way), states...
-- Answers {last number looked at or nothing at the end, job...}.

local after, wanted, look_at = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local only_queue, unique, session = ARGV[5], ARGV[6], ARGV[7]

local queues = {string.sub(only_queue, 2)}
if only_queue == '' then
  queues = redis.call('ZRANGE', QUEUES, 0, -1)
end
local each = math.max(10, math.ceil(look_at / math.max(1, #queues * (#ARGV - 7))))

-- The next ids of every index, of which only those count that lie before the end of each index that
-- has more.
local found, frontier = {}, nil
for _, queue in ipairs(queues) do
  for number = 8, #ARGV do
    local part = redis.call('ZRANGEBYSCORE', index_of(ARGV[number], queue), '(' .. after, '+inf',
      'WITHSCORES', 'LIMIT', 0, each)
    for entry = 1, #part, 2 do
      found[#found + 1] = {tonumber(part[entry + 1]), part[entry]}
    end
    if #part == 2 * each then
      local last = tonumber(part[#part])
      frontier = frontier and math.min(frontier, last) or last
    end
  end
end
table.sort(found, function(one, other) return one[1] < other[1] end)

local function passes(id)
  if unique == '' and session == '' then
    return true
  end
  local row = redis.call('HMGET', job_key(id), 'unique', 'session')
  return (unique == '' or (row[1] and '=' .. row[1] == unique))
    and (session == '' or (row[2] and '=' .. row[2] == session))
end

local answer = {false}
for _, entry in ipairs(found) do
  if frontier and entry[1] > frontier then
    break
  end
  if passes(entry[2]) then
    answer[#answer + 1] = describe_job(entry[2])
  end
  if #answer > wanted then
    answer[1] = entry[1]
    return answer
  end
end
answer[1] = frontier or false
return answer
