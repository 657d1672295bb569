-- End claimed jobs as done.
--   KEYS  queues
--   ARGV  prefix, then for each job: id, token, result ('=' and the text, or nothing)
-- Answers 'ok' or 'lost' for each.

-- A server out of memory refuses the first write of a script if it could grow, and none after it.
redis.call('HDEL', NUMBERS, '')
local answer = {}
for first = 2, #ARGV, 3 do
  local job, outcome = end_claim(ARGV[first], ARGV[first + 1], 'done')
  if job then
    if ARGV[first + 2] == '' then
      finish(job, 'done', 'settled', outcome)
    else
      finish(job, 'done', 'settled', outcome, 'result', string.sub(ARGV[first + 2], 2))
    end
    outcome = 'ok'
  end
  answer[#answer + 1] = outcome
end
return commit(answer)
