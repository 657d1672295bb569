-- The server's clock and whole numbers. Instants are microseconds since 1970: below 2^53 until the
-- year 2255, so that Lua's doubles hold them exactly.

local function now_us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- Lua would write a large number with an exponent.
local function int(number)
  return string.format('%.0f', number)
end
