-- remove_requests: remove requests if they are still waiting. Returns the number of removed requests.
-- ARGV: 5 requests
begin(false)
local dropped, without_head = 0, {}
for _, request in ipairs(decode(ARGV[5])) do
  if call('ZREM', QUEUE, request) == 1 then
    local name, key = split(request)
    local slot = slot_of(name)
    slot.queued = slot.queued - 1
    slot.touched = true
    without_head[name] = without_head[name] or slot.head == key
    dropped = dropped + 1
  elseif call('ZREM', DELAYED, request) == 1 then
    local slot = slot_of((split(request)))
    slot.delayed = max(0, slot.delayed - 1)
    slot.touched = true
    dropped = dropped + 1
  end
end
for name, is_so in pairs(without_head) do
  if is_so then
    local head = call('ZRANGE', QUEUE, '[' .. name .. '\0', '(' .. name .. '\1', 'BYLEX', 'LIMIT', 0, 1)[1]
    slot_of(name).head = head and sub(head, #name + 2, #name + 15) or ''
  end
end
if dropped > 0 then
  count('refused/dropped', dropped)
end
return finish(text(dropped))
