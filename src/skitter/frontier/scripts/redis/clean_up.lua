-- clean_up: check some slots, notes, workers and stored replies, and remove those that are no longer needed.
-- ARGV[5]: number of each to check
local A_DAY = 86400
begin(false)
local function look_through(key, place, is_idle)
  local page = call('HSCAN', key, call('HGET', JOB, place) or '0', 'COUNT', ARGV[5])
  call('HSET', JOB, place, page[1])
  local idle = {}
  for i = 1, #page[2], 2 do
    if is_idle(page[2][i], page[2][i + 1]) then
      idle[#idle + 1] = page[2][i]
    end
  end
  call_with_many('HDEL', key, idle)
  return idle
end

local slots_gone = look_through(SLOTS, 'tidied_slots', function(name)
  local slot = slot_of(name)
  -- Keep a slot with its own policy, and with budgets a slot with delayed requests: they need its policy and their number.
  return slot.queued == 0 and slot.leased == 0 and (slot.delayed == 0 or not budgets) and slot.min_delay == 0 and slot.backoff == 0
    and slot.policy == policy_of_queue(name) and ready_at(slot) <= now
end)
call_with_many('HDEL', GRANTS, slots_gone)
look_through(NOTES, 'tidied_notes', function(_, note)
  return struct.unpack('<d', note) <= now
end)
look_through(WORKERS, 'tidied_workers', function(_, worker)
  return struct.unpack('<d', worker, 9) <= now
end)
look_through(ANSWERS, 'tidied_answers', function(_, reply)
  return struct.unpack('<d', reply, 9) <= now - A_DAY
end)
call_with_many('ZREM', DELIVERED, call('ZRANGE', DELIVERED, '-inf', text(now - A_DAY), 'BYSCORE', 'LIMIT', 0,
  ARGV[5]))
if config.remembers then
  look_through(VISITS, 'tidied_visits', function(_, visit)
    return not is_valid(visit)
  end)
end
if config.visited_ttl then
  call_with_many('ZREM', SEEN, call('ZRANGE', SEEN, '-inf', text(now), 'BYSCORE', 'LIMIT', 0, ARGV[5]))
end
return 1
