-- drop_slot: remove some waiting requests of a slot. Returns their number, the next cursor among the delayed requests (- at
-- the end), and whether there may be more.
-- ARGV: 5 slot, 6 cursor among the delayed requests
begin(false)
local name, cursor = ARGV[5], ARGV[6]
local first, after = '[' .. name .. '\0', '(' .. name .. '\1'
local waiting = call('ZRANGE', QUEUE, first, after, 'BYLEX', 'LIMIT', 0, BATCH_SIZE)
if #waiting > 0 then
  call_with_many('ZREM', QUEUE, waiting)
  local slot = slot_of(name)
  local head = call('ZRANGE', QUEUE, first, after, 'BYLEX', 'LIMIT', 0, 1)[1]
  slot.queued = slot.queued - #waiting
  slot.head = head and sub(head, #name + 2, #name + 15) or ''
  slot.touched = true
end
local late = {}
if cursor ~= '-' then
  local page = call('ZSCAN', DELAYED, cursor, 'COUNT', BATCH_SIZE)
  cursor = page[1] == '0' and '-' or page[1]
  for i = 1, #page[2], 2 do
    if sub(page[2][i], 1, #name + 1) == name .. '\0' then
      late[#late + 1] = page[2][i]
    end
  end
  call_with_many('ZREM', DELAYED, late)
  if #late > 0 then
    local slot = slot_of(name)
    slot.delayed = max(0, slot.delayed - #late)
    slot.touched = true
  end
end
if #waiting + #late > 0 then
  count('refused/dropped', #waiting + #late)
end
local more = #waiting == BATCH_SIZE or cursor ~= '-'
return finish(#waiting + #late .. ' ' .. cursor .. ' ' .. (more and 1 or 0))
