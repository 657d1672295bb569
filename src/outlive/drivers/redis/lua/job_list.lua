-- A part of a listing, in order of enqueueing: looks at some jobs and gives those that pass.
--   KEYS  queues
--   ARGV  prefix, behind which number, how many are wanted, how many to look at, queue ('=' and
--         its name, or nothing for all), unique key, session (the same way), states...
-- Answers {last number looked at or nothing at the end, job...}.

local after, wanted, look_at = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local queue, unique, session = ARGV[5], ARGV[6], ARGV[7]

local sources, states = {}, {}
for number = 8, #ARGV do
  states[ARGV[number]] = true
  sources[#sources + 1] = index_of(ARGV[number], string.sub(queue, 2))
end
if queue == '' then
  sources = {K .. 'jobs'}
end

-- The next ids of every source, of which only those count that lie before the end of each source
-- that has more.
local found, frontier = {}, nil
local each = math.ceil(look_at / #sources)
for _, source in ipairs(sources) do
  local part = redis.call('ZRANGEBYSCORE', source, '(' .. after, '+inf', 'WITHSCORES', 'LIMIT', 0,
    each)
  for entry = 1, #part, 2 do
    found[#found + 1] = {tonumber(part[entry + 1]), part[entry]}
  end
  if #part == 2 * each then
    local last = tonumber(part[#part])
    frontier = frontier and math.min(frontier, last) or last
  end
end
table.sort(found, function(one, other) return one[1] < other[1] end)

local function passes(id)
  local row = redis.call('HMGET', job_key(id), 'state', 'unique', 'session')
  return states[row[1]]
    and (unique == '' or (row[2] and '=' .. row[2] == unique))
    and (session == '' or (row[3] and '=' .. row[3] == session))
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
