-- Let a mode hold for a queue; who waits hears of what can be claimed now.
--   KEYS  queues
--   ARGV  prefix, queue, mode

redis.call('HSET', K .. 'modes', ARGV[2], ARGV[3])
redis.call('ZADD', QUEUES, 0, ARGV[2])
fresh[ARGV[2]] = redis.call('ZCARD', K .. 'ready:' .. ARGV[2])
return commit(1)
