-- End a session at once; one that is unknown or has ended is fine.
--   KEYS  hosts
--   ARGV  prefix, id

if redis.call('ZSCORE', HOSTS, ARGV[2]) then
  end_session(ARGV[2])
end
return 1
