-- Prelude 1: the job. Every script except open and attach begins with the files of this folder.
--
-- The other files are functions that return what scripts need. A script is run from its beginning at each call, and
-- Lua searches the captured variables of the running function for each variable that a new function captures: with all of
-- them in one function this search took half of the time of a call.
--
-- KEYS: all keys of the job, always in this order.
-- ARGV: 1 generation, 2 time ('': that of the server), 3 client, 4 number of the call (8; '' if it may safely run twice),
--       5.. arguments of the script
local JOB, QUEUE, DELAYED, READY, SLOTS, BUSY, GRANTS, LEASES, DEADLINES, GRANTED, SEEN, DEAD, COUNTERS,
  OUTPUTS, NOTES, ANSWERS, WORKERS, BY_WORKER, BY_HOST, BY_GROUP, BANNED, CLAIMED, OUTBOX, DELIVERED,
  READY_BY_QUEUE, ALIVE, VISITS = unpack(KEYS)
local call, pack, decode = redis.call, struct.pack, cmsgpack.unpack
local sub, byte, format = string.sub, string.byte, string.format
local min, max = math.min, math.max

local meta = call('HMGET', JOB, 'generation', 'config', 'sequence', 'state', 'seeds_done', 'revision', 'bans',
  'queues', 'floors', 'done', 'seen', 'recrawls')
if meta[1] ~= ARGV[1] then
  return redis.error_reply('GONE the job is not the one that was opened')
end

-- A call whose reply was lost gets the same reply again; it does not run again. Nor does one that was cancelled, and arrives after a
-- later call of its client.
if ARGV[4] ~= '' then
  local before = call('HGET', ANSWERS, ARGV[3])
  if before and sub(before, 1, #ARGV[4]) == ARGV[4] then
    return sub(before, #ARGV[4] + 9)
  elseif before and struct.unpack('>I8', ARGV[4]) < struct.unpack('>I8', before) then
    return redis.error_reply('LATE the client has made another call since')
  end
end

-- A server without free memory refuses the first write of a script or none of them. Scripts that add requests may be
-- refused, and are then repeated. Scripts that remove requests, and renewals, must not be refused.
local function begin(adds)
  if adds then
    call('HSET', JOB, 'grows', '')
  else
    call('HDEL', JOB, 'grows')
  end
end

local config = decode(meta[2])
local sequence = tonumber(meta[3])
local first_sequence = sequence
local recrawls = tonumber(meta[12] or 0)
local finished_requests = 0
local queues = meta[8] -- names of all queues that the job ever had, without the default queue: ',list,detail,'
local is_active = false -- whether a request was added or a lease ended
local counted = {}
local BATCH_SIZE = 500 -- maximum number of delayed requests, and of lost leases, in one script

local now
if ARGV[2] == '' then
  local time = call('TIME')
  now = time[1] + time[2] / 1000000
else
  now = tonumber(ARGV[2])
end

local random_is_seeded = false
local function random()
  if not random_is_seeded then -- otherwise every script draws the same numbers
    math.randomseed(call('TIME')[2])
    random_is_seeded = true
  end
  return math.random()
end

local function next_number()
  sequence = sequence + 1
  return pack('>I6', sequence)
end

local function text(number)
  return format('%.17g', number)
end

local function count(name, amount)
  counted[name] = (counted[name] or 0) + amount
end

-- Lua's stack limits the number of values in one call.
local function call_with_many(command, key, values)
  for first = 1, #values, 1000 do
    call(command, key, unpack(values, first, min(first + 999, #values)))
  end
end

-- Read many fields of a hash into a table: false for those that do not exist.
local function get_many(key, fields, found)
  for first = 1, #fields, 1000 do
    local last = min(first + 999, #fields)
    for i, value in ipairs(call('HMGET', key, unpack(fields, first, last))) do
      found[fields[first + i - 1]] = value
    end
  end
end

local job_fields = {} -- fields of the job that finish() writes together, each followed by its value

local function set_in_job(field, value)
  job_fields[#job_fields + 1] = field
  job_fields[#job_fields + 1] = value
end

local function limit_reached()
  local limits = config.limits
  if not limits then
    return ''
  end
  local amounts = call('HMGET', COUNTERS, 'pages', 'items', 'bytes')
  if limits.pages and tonumber(amounts[1] or 0) >= limits.pages then
    return text(limits.pages) .. ' pages'
  elseif limits.items and tonumber(amounts[2] or 0) >= limits.items then
    return text(limits.items) .. ' items'
  elseif limits.errors and call('ZCARD', DEAD) >= limits.errors then
    return text(limits.errors) .. ' errors'
  elseif limits.bytes and tonumber(amounts[3] or 0) >= limits.bytes then
    return text(limits.bytes) .. ' bytes'
  end
  return ''
end

-- Whether a job without requests waits for seeds.
local function is_waiting()
  if not config.wait_for_seeds then
    return false
  end
  local active_at = call('HGET', JOB, 'active_at')
  if not active_at then
    active_at = text(now)
    call('HSET', JOB, 'active_at', active_at)
  end
  return now - active_at < config.wait_for_seeds
end

-- Format of a batch in CLAIMED: deadline(8, double) worker-length(1) worker, then the elements in MessagePack: key, value, score.
local function pack_batch(deadline, worker, elements)
  return pack('<d', deadline) .. string.char(#worker) .. worker .. elements
end

-- The worker and the elements of a batch.
local function unpack_batch(batch)
  local elements_at = 10 + byte(batch, 9)
  return sub(batch, 10, elements_at - 1), sub(batch, elements_at)
end

-- A worker has left or is dead: end its claim of the seeds. The next worker that asks takes its batches; it cannot settle them.
local function remove_worker(worker)
  if call('HGET', JOB, 'seed_worker') == worker then
    call('HDEL', JOB, 'seed_token', 'seed_worker', 'seed_deadline')
  end
  call('HDEL', WORKERS, worker)
  call('ZREM', ALIVE, worker, '?' .. worker)
  local batches = call('HGETALL', CLAIMED)
  for i = 1, #batches, 2 do
    local owner, elements = unpack_batch(batches[i + 1])
    if owner == worker then
      call('HDEL', CLAIMED, batches[i])
      call('HSET', CLAIMED, 'free ' .. batches[i], pack_batch(0, '', elements))
    end
  end
end

local function has_external_seeds()
  local keys = config.seed_keys
  return keys and (call('HLEN', CLAIMED) > 0 or call('EXISTS', unpack(keys)) > 0)
end

-- State of the job, and the limit that stops it. Call it after everything is written. set_state.lua changes meta[4].
local function current_state()
  local has_work = call('ZCARD', QUEUE) > 0 or call('HLEN', LEASES) > 0 or call('ZCARD', DELAYED) > 0
  local limit = limit_reached()
  local is_idle = not has_work and meta[5] == '1'
  if is_idle and not has_external_seeds() and not is_waiting() then
    return 'finished', limit
  elseif limit ~= '' then
    return 'stopping', limit
  end
  return meta[4], limit
end
