-- stranded: list slots that have been ready for so long, and how many requests wait in each.
-- ARGV: 5 seconds, 6 how many slots
local found = {}
for i, name in ipairs(call('ZRANGE', READY, '-inf', text(now - ARGV[5]), 'BYSCORE', 'LIMIT', 0, ARGV[6])) do
  local slot = slot_of(sub(name, 15))
  found[i] = {slot.name, slot.queued}
end
local last_head = string.rep('\255', 15) -- comes after every head and name of the same moment
for queue in string.gmatch((floors and 'default' or '') .. (queues or ''), '[^,]+') do
  local first, after = '[' .. queue .. '\0', '(' .. queue .. '\0' .. pack('>d', now - ARGV[5]) .. last_head
  for _, name in ipairs(call('ZRANGE', READY_BY_QUEUE, first, after, 'BYLEX', 'LIMIT', 0, ARGV[6])) do
    local slot = slot_of(sub(name, #queue + 24))
    found[#found + 1] = {slot.name, slot.queued}
  end
end
return found
