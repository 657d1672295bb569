-- Let a mode hold for a queue; who waits hears of what can be claimed, now or when it is due: while
-- a queue is paused nobody is told when that is.
--   KEYS  queues
--   ARGV  prefix, queue, mode

redis.call('HSET', K .. 'modes', ARGV[2], ARGV[3])
redis.call('ZADD', QUEUES, 0, ARGV[2])
ring(ARGV[2], count_claimable(ARGV[2]) + redis.call('ZCARD', K .. 'due:' .. ARGV[2]))
return 1
