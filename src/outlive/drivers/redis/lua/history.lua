-- Ended grants of a key: a list, the newest first. Names hold no newline, so that lines separate;
-- the detail comes last.

-- Cut in batches: the other fifteen grants pay nothing.
local HISTORY_SLACK = 16

local function push_history(history, slot, token, owner, acquired, ended, why, detail)
  local entry = table.concat({slot, token, acquired, int(ended), why, owner, detail or ''}, '\n')
  if redis.call('LPUSH', history, entry) > HISTORY_MAX + HISTORY_SLACK then
    redis.call('LTRIM', history, 0, HISTORY_MAX - 1)
  end
end

-- Why a grant with this token is not to be found any more: 'broken', or 'fenced' for all else.
local function why_ended(history, slot, token)
  local head = slot .. '\n' .. token .. '\n'
  for _, entry in ipairs(redis.call('LRANGE', history, 0, -1)) do
    if string.sub(entry, 1, #head) == head and string.find(entry, '\nbroken\n', #head, true) then
      return 'broken'
    end
  end
  return 'fenced'
end
