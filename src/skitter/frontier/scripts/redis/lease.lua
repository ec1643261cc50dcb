-- lease: record which fetches have ended, then lease requests that may be fetched now.
-- ARGV: 5 worker, 6 number of leases wanted, 7 first 6 bytes of the new ids, 8 '1' if this call is repeated,
--       9 fetch reports (id, latency and, unless empty, refused, retry-after, connecting, whether nothing was sent),
--       10 quotas: maximum number of leases by queue ('': no maximum), 11 slots to lease from (absent: all ready slots)
-- With ARGV[11], the last element of the reply is {whether more could be leased, the decision for each slot}.
begin(false)
local worker, wanted, prefix = ARGV[5], tonumber(ARGV[6]), ARGV[7]
local keeper = ARGV[11] and '' or worker -- slots are kept for it; not if any worker may name a slot next
local reports = decode(ARGV[9])
local ids = {prefix .. '\0\0'}
for i, fetch in ipairs(reports) do
  ids[i + 1] = fetch[1]
end
read_leases(ids)
for _, fetch in ipairs(reports) do
  local lease = lease_of(fetch[1])
  if lease and not lease.fetch_ended then
    lease.fetch_ended = true
    write_lease(lease)
    end_fetch(slot_of((split(lease.request))), lease.granted_at, keeper, unpack(fetch, 2, 6))
  end
end
local more = queue_due()
settle()
local state, limit = current_state()
local reply, deadlines, granted = {}, {}, {}
local offered, given = ARGV[11] and decode(ARGV[11]), {}
local quotas = ARGV[10] ~= '' and decode(ARGV[10]) or nil
local heads = {} -- results of head_of() by queue
local is_written = false -- whether finish() has been called

-- Slots that were never leased from come first, but three of four leases go to another one that is ready: a page may link
-- to 50,000 hosts that do not exist.
local function prefers_asked()
  return (byte(prefix, 6) + #reply) % 4 > 0
end

-- The ready slots of the default queue, as many as may be leased: new ones, that were never leased from (time 0), and others.
-- Each is {time, head and name}, in order. Not used on a server that keeps its data on disk.
local new, asked
local kept = {} -- by queue: its ready slots that are kept for this worker, in the same form

local function read_ready(from, to)
  local members = call('ZRANGE', READY, from, to, 'BYSCORE', 'LIMIT', 0, wanted - #reply, 'WITHSCORES')
  local found, names = {}, {}
  for i = 1, #members, 2 do
    found[#found + 1] = {tonumber(members[i + 1]), members[i]}
    names[#names + 1] = sub(members[i], 15)
  end
  read_slots(names)
  return found
end

-- Return a slot to the ready slots, if more may be leased from it now. finish() writes its position.
local function return_to_ready(slot)
  local at = ready_at(slot)
  if slot.queued == 0 or not has_capacity(slot) or at > now then
    return
  end
  local ready = at == 0 and new or asked
  local index = #ready + 1
  while index > 1 and (ready[index - 1][1] > at
    or ready[index - 1][1] == at and comes_before(slot.head, ready[index - 1][2])) do
    index = index - 1
  end
  table.insert(ready, index, {at, slot.head .. slot.name})
end

local function kept_of(queue)
  if not kept[queue] and not floors then
    local prefix, names = kept_for(worker, queue), {}
    -- The bytes 255 sort after every head and name of the same time.
    local to = is_written and sub(prefix, 1, -2) .. '\1' or prefix .. pack('>d', now) .. string.rep('\255', 15)
    kept[queue] = {}
    for i, member in ipairs(call('ZRANGE', READY_BY_QUEUE, '[' .. prefix, '(' .. to, 'BYLEX', 'LIMIT', 0,
      is_written and 1 or wanted - #reply)) do
      kept[queue][i] = {struct.unpack('>d', member, #prefix + 1), sub(member, #prefix + 9)}
      names[i] = sub(member, #prefix + 23)
    end
    read_slots(names)
  end
  return kept[queue] or {}
end

-- The first ready slot of a queue that is not kept for this worker, as {time, head and name}; nil if there is none.
local function unkept_head_of(queue)
  if queue ~= 'default' or floors then
    local first = first_ready_of(queue, prefers_asked())
    return first and {struct.unpack('>d', first), sub(first, 9)}
  elseif is_written then
    local first = call('ZRANGE', READY, 0, 0, 'WITHSCORES')
    return first[1] and {tonumber(first[2]), first[1]}
  end
  new, asked = new or read_ready(0, 0), asked or read_ready('(0', text(now))
  return (not prefers_asked() and new[1]) or asked[1] or new[1]
end

-- The first ready slot of a queue, as {time, head and name}; false if there is none.
local function head_of(queue)
  local mine, other = kept_of(queue)[1], unkept_head_of(queue)
  local precedes = mine and (not other or mine[1] < other[1] or other[1] == 0 and mine[1] <= now and prefers_asked())
  return precedes and mine or other or false
end

-- The first ready slot of all queues with a quota left, and its queue.
local function first_ready()
  if not quotas and not queues then
    return head_of('default'), 'default'
  end
  local best, best_queue
  for queue in string.gmatch('default' .. (queues or ''), '[^,]+') do
    local quota = not quotas and 1 or quotas[queue] or quotas['*'] or 0
    if quota > 0 then
      if heads[queue] == nil then
        heads[queue] = head_of(queue)
      end
      local head = heads[queue]
      if head and (not best or head[1] < best[1] or head[1] == best[1] and comes_before(head[2], best[2])) then
        best, best_queue = head, queue
      end
    end
  end
  return best, best_queue
end

local function give(lease, slot, deadline)
  given[slot.name] = (given[slot.name] or 0) + 1
  reply[#reply + 1] = lease.id .. pack('<dd', deadline, start_within(slot) or -1) .. lease.request
end

-- Remove and return the first waiting request of a slot. Several are read at a time, if this call may lease several.
local function pop(slot)
  local waiting, used = slot.waiting or {}, slot.used or 0
  if #waiting - used < min(2, slot.queued) then
    local ready = 1 + (new and #new or 0) + (asked and #asked or 0)
    local most = delay_of(slot) > 0 and 1 or slot.limits.concurrency_per_slot - slot.in_flight
    local share = offered and 1 or min(most, math.ceil((wanted - #reply) / ready))
    waiting, used = call('ZRANGE', QUEUE, '[' .. slot.name .. '\0' .. slot.head, '(' .. slot.name .. '\1',
      'BYLEX', 'LIMIT', 0, min(share + 1, slot.queued)), 0
    slot.waiting = waiting
  end
  local request, following = waiting[used + 1], waiting[used + 2]
  slot.used = used + 1
  dequeue(request)
  slot.queued = slot.queued - 1
  slot.head = following and sub(following, #slot.name + 2, #slot.name + 15) or ''
  return request
end

local function take(slot)
  local lease = {id = prefix .. pack('>I2', #reply), fetch_ended = false, granted_at = now, worker = worker,
    request = pop(slot)}
  grant(slot)
  slot.touched = true
  write_lease(lease)
  deadlines[#deadlines + 1] = now + config.lease_seconds
  deadlines[#deadlines + 1] = lease.id
  granted[#granted + 1] = now
  granted[#granted + 1] = lease.id
  give(lease, slot, now + config.lease_seconds)
end

if ARGV[8] == '1' then
  for i = 0, wanted - 1 do
    local lease = lease_of(prefix .. pack('>I2', i))
    if lease then
      give(lease, slot_of((split(lease.request))), tonumber(call('ZSCORE', DEADLINES, lease.id)))
    end
  end
end
if lease_of(prefix .. '\0\0') then
  wanted = 0 -- leases with these ids exist: the call was repeated, or the ids were drawn twice
end
if #reply == 0 and state == 'running' then
  if config.limits and config.limits.pages then
    local pages = tonumber(call('HGET', COUNTERS, 'pages') or 0)
    wanted = min(wanted, config.limits.pages - pages - call('HLEN', LEASES))
  end
  for _, name in ipairs(offered or {}) do
    local slot = slot_of(name)
    local is_free = slot.queued > 0 and has_capacity(slot)
    if #reply < wanted and is_free and ready_at(slot) <= now then
      take(slot)
    end
  end
  while #reply < wanted and not offered do
    local first, queue = first_ready()
    if not first or first[1] > now then
      break
    end
    local slot = slot_of(sub(first[2], 15))
    local is_listed = queue == 'default' and not floors
    if first == kept_of(queue)[1] then
      table.remove(kept[queue], 1)
    elseif is_listed then
      table.remove(first == new[1] and new or asked, 1)
    end
    heads[queue] = nil
    if has_capacity(slot) and ready_at(slot) <= now then
      take(slot)
      if quotas then
        quotas[queue] = (quotas[queue] or quotas['*']) - 1
      end
    else -- its budget was lowered since, or it is listed twice and was leased from in this call
      slot.touched = true
      if spent(slot.name) then
        record_spent(slot.name)
        more = true
      end
    end
    if is_listed then
      return_to_ready(slot)
    else
      reschedule(slot)
      write_order()
    end
  end
  if #reply > 0 then
    record_member('deadlines', now + config.lease_seconds)
    record_member('granted', now)
  end
  call_with_many('ZADD', DEADLINES, deadlines)
  call_with_many('ZADD', GRANTED, granted)
end
finish('')
heads, kept, is_written = {}, {}, true -- finish() has changed them
local ready = first_ready()
local delayed = first_time_of(DELAYED, 'delayed')
local late = first_time_of(DEADLINES, 'deadlines') -- its request may return then
keep_floors()
local capacity = -1
if config.max_queued then
  local queued, leased = call('ZCARD', QUEUE), call('HLEN', LEASES)
  local pages = tonumber(call('HGET', COUNTERS, 'pages') or 0)
  local most = config.limits and config.limits.pages or math.huge
  capacity = max(config.max_queued - queued - call('ZCARD', DELAYED) - leased,
    queued > 0 and pages + leased < most and 0 or 1)
end

-- 'g': leased; a number: seconds until the slot is ready, 0 if its concurrency limit is reached; 'l': a request may return
-- to the slot; 'x': no request can.
local function decision(name)
  local slot = slot_of(name)
  if (given[name] or 0) > 0 then
    given[name] = given[name] - 1
    return 'g'
  elseif slot.queued > 0 then
    return text(max(0, ready_at(slot) - now))
  end
  return (slot.leased > 0 or delayed ~= '') and 'l' or 'x'
end

local result = {
  state, limit, text(now), ready and text(ready[1]) or '', delayed, late, more and 1 or 0, meta[6], reply, capacity,
  recrawls,
}
if offered then
  local decisions = {}
  for i, name in ipairs(offered) do
    decisions[i] = decision(name)
  end
  local has_ready = ready and ready[1] <= now
  result[#result + 1] = {(state == 'running' and #reply < wanted and has_ready) and 1 or 0, decisions}
end
return result
