-- Tell the store which run of the server it lives in, and begin the quiet time after a new one.
--   KEYS  epoch
--   ARGV  run id, largest ttl that the client remembers, whether it knew another run or record
--         ('1' or nothing), uptime of a server that keeps nothing (or nothing), ttl to assume of
--         what nobody knows, whether to be quiet at all ('1' or nothing), largest ttl of a session
--         that the client remembers
-- Answers {quiet for so many us, largest ttl that anybody knows of}.
--
-- A restart or a failover may have lost grants that their owners still believe in. None of them
-- lasts longer than the largest ttl, so that nothing is granted for so long. Where the store does not
-- know it, one is assumed, unless the client knows of a longer one. Only a server that keeps nothing
-- cannot tell a restart from a first start: there the time counts from its start.
--
-- Claims of jobs are quiet for the largest ttl of a session: a claimant whose session was lost has
-- stopped by then. Nothing is assumed there: a store that forgot all has no jobs to claim.

local epoch = KEYS[1]
local now = now_us()
local row = redis.call('HMGET', epoch, 'run', 'since', 'until', 'ttl', 'claims_until',
  'session_ttl')
local remembered, lost, quiet = tonumber(ARGV[2]), ARGV[3] == '1', ARGV[6] == '1'
local since, until_ = tonumber(row[2]) or now, tonumber(row[3]) or 0
local longest = math.max(tonumber(row[4]) or 0, remembered)
local claims_until = tonumber(row[5]) or 0
local session_ttl = tonumber(ARGV[7])

if row[1] == ARGV[1] then
  -- Others were here first and may remember less.
  if lost and quiet and remembered > 0 and since + remembered > until_ then
    until_ = since + remembered
    redis.call('HSET', epoch, 'until', int(until_))
  end
  if lost and quiet and session_ttl > 0 and since + session_ttl > claims_until then
    redis.call('HSET', epoch, 'claims_until', int(since + session_ttl))
  end
else
  if lost and (not row[1] or longest == 0) then
    -- The client knows only what it saw: others may remember more, and come later.
    longest = math.max(longest, tonumber(ARGV[5]))
  end
  if quiet and longest > 0 then
    until_ = math.max(until_, now + longest)
  elseif quiet and not row[1] and ARGV[4] ~= '' then
    until_ = now - tonumber(ARGV[4]) + tonumber(ARGV[5])
  end
  session_ttl = math.max(session_ttl, tonumber(row[6]) or 0)
  if quiet and session_ttl > 0 and (row[1] or lost) then
    claims_until = math.max(claims_until, now + session_ttl)
  end
  redis.call('HSET', epoch, 'run', ARGV[1], 'since', int(now), 'until', int(until_), 'ttl', 0,
    'claims_until', int(claims_until), 'session_ttl', 0)
end
return {math.max(0, until_ - now), longest}
