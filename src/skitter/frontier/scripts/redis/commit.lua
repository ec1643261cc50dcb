-- commit: close leases, each with its new requests, counters and output marks, or not at all.
-- ARGV: 5 names, outcomes (id, resolution, entries, counters, outputs, error, after, free, record), 6 see told()
-- Returns a 1 or a 0 for each outcome: whether it was in time.
local DONE, RETRY = 0, 1
local names, outcomes = unpack(decode(ARGV[5]))
begin(#names > 0)
local is_behind = wake()
local parts = {}

local function mark(part, first, last)
  local range = parts[part]
  if not range then
    local packed = call('HGET', OUTPUTS, part)
    range = packed and {struct.unpack('<dd', packed)} or {first, first}
    parts[part] = range
  end
  if range[2] ~= first then
    call('HSET', OUTPUTS, part .. '\0' .. text(range[1]), pack('<dd', range[1], range[2]))
    range[1] = first
  end
  range[2] = last
end

local function retry(outcome, name, key, rest)
  local attempt = struct.unpack('>I2', rest)
  attempt = min(attempt + (outcome[8] and 0 or 1), 65535)
  rest = pack('>I2', attempt) .. sub(rest, 3)
  if outcome[9] then
    rest = sub(rest, 1, 25 + struct.unpack('>I4', rest, 22)) .. outcome[9]
  end
  place_again(name, key, rest, now + outcome[7])
end

local function close(lease, outcome)
  local name, key, rest = end_lease(lease)
  if outcome[2] == DONE then
    finished_requests = finished_requests + 1
    if config.visited_ttl and byte(rest, 5) == 1 then
      call('ZADD', SEEN, now + config.visited_ttl, sub(rest, 6, 21))
    end
  elseif outcome[2] == RETRY then
    retry(outcome, name, key, rest)
  else
    bury(name, key, rest, outcome[6])
  end
  insert(names, outcome[3])
  for counter, amount in pairs(outcome[4]) do
    count(counter, amount)
  end
  for _, range in ipairs(outcome[5]) do
    mark(range[1], range[2], range[3])
  end
end

local answer = {}
for i, outcome in ipairs(outcomes) do
  local lease = lease_of(outcome[1])
  if lease and is_behind and tonumber(call('ZSCORE', DEADLINES, lease.id)) <= now then
    lose(lease)
    lease = nil
  end
  answer[i] = lease and '1' or '0'
  if lease then
    close(lease, outcome)
  end
end
for part, range in pairs(parts) do
  call('HSET', OUTPUTS, part, pack('<dd', range[1], range[2]))
end
return finish(table.concat(answer) .. told())
