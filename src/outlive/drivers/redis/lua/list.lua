-- A part of a listing: looks at some keys in order and gives the records that pass the filters.
--   KEYS  index
--   ARGV  from, to (as ZRANGEBYLEX takes them), keys to look at, records wanted,
--         active ('1' or nothing), owner ('=' and the owner, or nothing),
--         what the names of leases and of their places begin with
-- Answers {now, last key looked at or nothing at the end, key, records, key, records...}.
-- The keys it reads have the hash tag of the index, and so are where it is.

local now = now_us()
local keys = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
local answer = {now, false}
local records, wanted = 0, tonumber(ARGV[4])
for number, key in ipairs(keys) do
  local found = describe(ARGV[7] .. key, ARGV[8] .. key, now, ARGV[5] == '1', ARGV[6])
  if found then
    answer[#answer + 1] = key
    answer[#answer + 1] = found
    records = records + #found - 3
  end
  if records >= wanted or number == tonumber(ARGV[3]) then
    answer[2] = key
    break
  end
end
return answer
