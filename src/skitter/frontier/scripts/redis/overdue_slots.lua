-- overdue_slots: list slots that have been ready for some time, with their numbers of waiting requests.
-- ARGV: 5 seconds, 6 maximum number of slots per queue
local found = {}
local function add(name)
  local slot = slot_of(name)
  found[#found + 1] = {slot.name, slot.queued}
end
if not floors then
  for _, name in ipairs(call('ZRANGE', READY, '-inf', text(now - ARGV[5]), 'BYSCORE', 'LIMIT', 0, ARGV[6])) do
    add(sub(name, 15))
  end
end
local last_head = string.rep('\255', 15) -- sorts after every head and name of the same time
for queue in string.gmatch((floors and 'default' or '') .. (queues or ''), '[^,]+') do
  local first, after = '[' .. queue .. '\0', '(' .. queue .. '\0' .. pack('>d', now - ARGV[5]) .. last_head
  for _, key in ipairs(floors and {READY, READY_BY_QUEUE} or {READY_BY_QUEUE}) do
    for _, name in ipairs(call('ZRANGE', key, first, after, 'BYLEX', 'LIMIT', 0, ARGV[6])) do
      add(sub(name, #queue + 24))
    end
  end
end
return found
