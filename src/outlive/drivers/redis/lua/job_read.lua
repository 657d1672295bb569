-- What people are shown of jobs. Reads only.

-- {id, fields and values, body}
local function describe_job(id)
  return {id, redis.call('HGETALL', job_key(id)), redis.call('GET', K .. 'body:' .. id)}
end
