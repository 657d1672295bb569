-- One session, unless it has ended.
--   KEYS  hosts
--   ARGV  prefix, id
-- Answers {now, session}, or {now}.

if not redis.call('ZSCORE', HOSTS, ARGV[2]) then
  return {now}
end
return {now, describe_session(ARGV[2])}
