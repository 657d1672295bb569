-- Forget jobs that have ended.
--   KEYS  queues
--   ARGV  prefix, ids...
-- Answers 'changed', 'refused' or 'not_found' for each.

local answer = {}
for number = 2, #ARGV do
  local job = read_job(ARGV[number])
  local outcome = 'not_found'
  if job then
    outcome = 'refused'
    if FINAL[job.state] then
      later('ZREM', K .. 'ended', job.id)
      forget(job)
      outcome = 'changed'
    end
  end
  answer[#answer + 1] = outcome
end
return commit(answer)
