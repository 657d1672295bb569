-- What people are shown of a key. Reads only.

local FIELDS = {'owner', 'token', 'version', 'ttl', 'expires', 'acquired', 'renewed', 'metadata'}

local function is_owned_by(owner, wanted)
  return owner == wanted or string.match(owner, '^(.*)/[^/]*$') == wanted
end

-- The records of a key that pass the filters: {limit, waiters, state, {slot, fields...}...},
-- or nothing if it was never granted or no slot passes.
local function describe(lease, until_, now, active, wanted)
  local row = redis.call('HMGET', lease, 'limit', 'slots', 'state')
  if not row[1] then
    return nil
  end
  local found = {tonumber(row[1]), 0, row[3]}
  for slot = 0, tonumber(row[2]) - 1 do
    local names = {}
    for number, name in ipairs(FIELDS) do
      names[number] = name .. ':' .. slot
    end
    local fields = redis.call('HMGET', lease, unpack(names))
    local live = fields[1] and tonumber(fields[5]) > now
    if (live or not active)
      and (wanted == '' or (fields[1] and is_owned_by(fields[1], string.sub(wanted, 2))))
    then
      table.insert(fields, 1, slot)
      found[#found + 1] = fields
    end
  end
  if #found == 3 then
    return nil
  end
  found[2] = redis.call('ZCOUNT', until_, '(' .. int(now), '+inf')
  return found
end
