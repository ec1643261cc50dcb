-- commit: close leases, each together with its new requests, counters and output ranges.
-- ARGV: 5 names, outcomes (id, resolution, entries, counters, outputs, error, after, free, record, group, outbox,
--       visit: nil, or code of the change, status, and the rest of the visit or nil),
--       whether any outcome has an outbox or a new visit; 6 see report()
-- Returns 1 or 0 for each outcome: whether it was in time.
local DONE, RETRY = 0, 1
local names, outcomes, grows = unpack(decode(ARGV[5]))
begin(#names > 0 or grows)
local is_behind = queue_due()
local parts = {}

-- Read what all outcomes need with a few calls.
local function read_ahead()
  local ids, fingerprints, slot_names = {}, {}, {}
  for i, outcome in ipairs(outcomes) do
    ids[i] = outcome[1]
    for _, entry in ipairs(outcome[3]) do
      fingerprints[#fingerprints + 1] = sub(entry[3], 6, 21)
    end
  end
  for i, name in ipairs(names) do
    slot_names[i] = name[1]
  end
  read_leases(ids)
  read_slots(slot_names)
  look_ahead(fingerprints)
end
read_ahead()

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
    rest = sub(rest, 1, 25 + struct.unpack('>I3', rest, 23)) .. outcome[9]
  end
  enqueue_again(name, key, rest, now + outcome[7])
end

-- Seven doubles per key, in the order of the fields of StatsRow in frontier/stats.py.
local STATS = '<ddddddd'
local stats = {[BY_WORKER] = {}, [BY_HOST] = {}, [BY_GROUP] = {}}
local function add_stats(worker, host, outcome)
  local counters, is_failure = outcome[4], outcome[2] ~= DONE
  local pages, items, bytes = counters.pages or 0, counters.items or 0, counters.bytes or 0
  local failed = is_failure and outcome[2] ~= RETRY and 1 or 0
  local retried = outcome[2] == RETRY and not outcome[8] and 1 or 0
  local fetch_us = counters['time/fetch/us']
  local responses = fetch_us and 1 or 0
  fetch_us = fetch_us or 0
  if pages + items + bytes + failed + retried + responses == 0 then
    return
  end
  if budgets then
    local used = usage_of(host)
    used[1], used[2] = used[1] + pages, used[2] + bytes
    if spent(host) then
      record_spent(host)
    end
  end
  local function add(dimension, key)
    local sums = stats[dimension][key]
    if not sums then
      stats[dimension][key] = {pages, items, bytes, failed, retried, responses, fetch_us}
      return
    end
    sums[1], sums[2], sums[3] = sums[1] + pages, sums[2] + items, sums[3] + bytes
    sums[4], sums[5] = sums[4] + failed, sums[5] + retried
    sums[6], sums[7] = sums[6] + responses, sums[7] + fetch_us
  end
  add(BY_WORKER, worker)
  add(BY_HOST, host)
  if outcome[10] ~= '' then
    add(BY_GROUP, outcome[10])
  end
end

local function close(lease, outcome)
  local name, key, rest = end_lease(lease)
  add_stats(lease.worker, name, outcome)
  if outcome[2] == DONE then
    finished_requests = finished_requests + 1
    if config.visited_ttl and byte(rest, 5) == 1 then
      call('ZADD', SEEN, now + config.visited_ttl, sub(rest, 6, 21))
    end
  elseif outcome[2] == RETRY then
    retry(outcome, name, key, rest)
  else
    mark_dead(name, key, rest, outcome[6])
  end
  if outcome[12] then
    remember(rest, outcome[12])
  end
  insert(names, outcome[3], false, true)
  for counter, amount in pairs(outcome[4]) do
    count(counter, amount)
  end
  for _, range in ipairs(outcome[5]) do
    mark(range[1], range[2], range[3])
  end
  put_outbox(outcome[11])
end

local function plus(packed, sums)
  if packed then
    local known = {struct.unpack(STATS, packed)}
    for i = 1, 7 do
      known[i] = known[i] + sums[i]
    end
    sums = known
  end
  return pack(STATS, unpack(sums, 1, 7))
end

-- Draw some keys at random and add those with the fewest pages and dead letters to the empty key.
local function fold(dimension)
  if dimension == BY_HOST and budgets and (budgets.pages or budgets.bytes) then
    return -- the budgets need exact counts
  end
  local over = call('HLEN', dimension) - config.stats_max_keys
  if over <= 0 then
    return
  end
  local drawn = call('HRANDFIELD', dimension, 2 * over + 32, 'WITHVALUES')
  local keys, size, packed = {}, {}, {}
  for i = 1, #drawn, 2 do
    if drawn[i] ~= '' then
      keys[#keys + 1] = drawn[i]
      packed[drawn[i]] = drawn[i + 1]
      local pages, _, _, failed = struct.unpack('<dddd', drawn[i + 1])
      size[drawn[i]] = pages + failed
    end
  end
  table.sort(keys, function(a, b)
    return size[a] < size[b]
  end)
  local others = call('HGET', dimension, '')
  for i = 1, min(over + 16, #keys) do
    others = plus(others, {struct.unpack(STATS, packed[keys[i]])})
    call('HDEL', dimension, keys[i])
  end
  call('HSET', dimension, '', others)
end

local function write_stats(dimension, changed)
  local keys, known, fields, grows = {}, {}, {}, false
  for key in pairs(changed) do
    keys[#keys + 1] = key
  end
  get_many(dimension, keys, known)
  for _, key in ipairs(keys) do
    fields[#fields + 1] = key
    fields[#fields + 1] = plus(known[key], changed[key])
    grows = grows or not known[key]
  end
  call_with_many('HSET', dimension, fields)
  if grows then
    fold(dimension)
  end
end

local reply = {}
for i, outcome in ipairs(outcomes) do
  local lease = lease_of(outcome[1])
  if lease and is_behind and tonumber(call('ZSCORE', DEADLINES, lease.id)) <= now then
    lose_lease(lease)
    lease = nil
  end
  reply[i] = lease and '1' or '0'
  if lease then
    close(lease, outcome)
  end
end
for part, range in pairs(parts) do
  call('HSET', OUTPUTS, part, pack('<dd', range[1], range[2]))
end
for dimension, changed in pairs(stats) do
  write_stats(dimension, changed)
end
local plain = config.group_counters
if plain then
  for group, sums in pairs(stats[BY_GROUP]) do
    if sums[2] > 0 then
      -- The key may hold something else, or the user may lack permission; neither may interrupt a commit.
      local raised = redis.pcall('INCRBY', plain.prefix .. group, sums[2])
      if type(raised) ~= 'number' then
        count('errors/group_counter', 1)
      elseif plain.ttl then
        redis.pcall('PEXPIRE', plain.prefix .. group, format('%d', plain.ttl * 1000))
      end
    end
  end
end
return finish(table.concat(reply) .. report())
