-- End a session at once; one that is unknown or has ended is fine.
--   KEYS  hosts
--   ARGV  id

if redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  end_session(KEYS[1], ARGV[1], now_us())
end
return 1
