-- What is known of one job.
--   KEYS  queues
--   ARGV  prefix, id
-- Answers as describe_job does, or nothing.

if redis.call('EXISTS', job_key(ARGV[2])) == 0 then
  return false
end
return describe_job(ARGV[2])
