-- Learn which claims stand, and keep the progress of those that do.
--   KEYS  queues
--   ARGV  prefix, then for each job: id, token, progress ('=' and the text, or nothing)
-- Answers 'ok', 'cancel' or 'lost' for each.

local answer = {}
for first = 2, #ARGV, 3 do
  local key, progress = job_key(ARGV[first]), ARGV[first + 2]
  local row = redis.call('HMGET', key, 'state', 'token', 'cancel')
  local outcome = 'lost'
  if row[1] == 'claimed' and row[2] == ARGV[first + 1] then
    outcome = row[3] and 'cancel' or 'ok'
    if progress ~= '' then
      redis.call('HSET', key, 'progress', string.sub(progress, 2))
    end
  end
  answer[#answer + 1] = outcome
end
return answer
