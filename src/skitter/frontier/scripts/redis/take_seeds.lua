-- take_seeds: take elements from the seed keys, or a batch that another worker took and did not settle in time.
-- KEYS: the keys of the job, then the seed keys. ARGV: 5 token, 6 maximum number, 7 number of queued requests from which
--       nothing is taken, 8 number of keys of the job, 9 '1' to take from the left end of lists, 10 worker
begin(true)
local token, wanted, worker = ARGV[5], tonumber(ARGV[6]), ARGV[10]

local function claim(elements)
  call('HSET', CLAIMED, token, pack_batch(now + config.lease_seconds, worker, elements))
  return elements
end

local mine = call('HGET', CLAIMED, token)
if mine then
  local _, elements = unpack_batch(mine)
  return claim(elements)
end
local others = call('HGETALL', CLAIMED)
for i = 1, #others, 2 do
  if struct.unpack('<d', others[i + 1]) <= now then
    call('HDEL', CLAIMED, others[i])
    local _, elements = unpack_batch(others[i + 1])
    return claim(elements)
  end
end
if call('ZCARD', QUEUE) >= tonumber(ARGV[7]) then
  return false
end

-- An error does not undo the writes of a script: all keys are checked before anything is taken from one.
local kinds = {}
for i = tonumber(ARGV[8]) + 1, #KEYS do
  local kind = call('TYPE', KEYS[i]).ok
  if kind ~= 'none' and kind ~= 'list' and kind ~= 'set' and kind ~= 'zset' then
    return redis.error_reply('SEEDKEY ' .. KEYS[i] .. ' is a ' .. kind)
  end
  kinds[i] = kind
end

local taken = {}
local function add(key, value, score)
  taken[#taken + 1] = {key, value, score}
end
for i = tonumber(ARGV[8]) + 1, #KEYS do
  local key, kind, left = KEYS[i], kinds[i], wanted - #taken
  if left == 0 then
    break
  elseif kind == 'list' and ARGV[9] == '1' then
    local values = call('LRANGE', key, 0, left - 1)
    call('LTRIM', key, left, -1)
    for _, value in ipairs(values) do
      add(key, value, 0)
    end
  elseif kind == 'list' then
    local values = call('LRANGE', key, -left, -1)
    call('LTRIM', key, 0, -left - 1)
    for at = #values, 1, -1 do
      add(key, values[at], 0)
    end
  elseif kind == 'set' then
    for _, value in ipairs(call('SPOP', key, left)) do
      add(key, value, 0)
    end
  elseif kind == 'zset' then
    local values = call('ZPOPMAX', key, left)
    for at = 1, #values, 2 do
      add(key, values[at], tonumber(values[at + 1]))
    end
  end
end
return #taken > 0 and claim(cmsgpack.pack(taken))
