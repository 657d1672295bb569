-- A part of all queues, by name.
--   KEYS  queues
--   ARGV  prefix, from where (as ZRANGEBYLEX takes it), how many
-- Answers {now, queue...}, each with name, mode or nothing, how many jobs are in each state, and when
-- the oldest ready one came due, or nothing.

local answer = {now}
for _, queue in ipairs(redis.call('ZRANGEBYLEX', QUEUES, ARGV[2], '+', 'LIMIT', 0, ARGV[3])) do
  local counts = {}
  for number, state in ipairs(STATES) do
    counts[number] = redis.call('ZCARD', index_of(state, queue))
  end
  local oldest = redis.call('ZRANGE', index_of('ready', queue), 0, 0)[1]
  local since = oldest and redis.call('HMGET', job_key(oldest), 'due', 'enqueued') or {}
  answer[#answer + 1] = {queue, redis.call('HGET', K .. 'modes', queue), counts,
    since[1] or since[2] or false}
end
return answer
