-- find_requests: search some of the waiting requests for a text. Returns the next cursor ('' at the end) and the requests found.
-- ARGV: 5 'queue' or 'delayed', 6 cursor ('' to start), 7 text
local found, last = {}, ''
local function look(request)
  if string.find(request, ARGV[7], 1, true) then
    found[#found + 1] = request
  end
end
if ARGV[5] == 'queue' then
  local waiting = call('ZRANGE', QUEUE, ARGV[6] == '' and '-' or '(' .. ARGV[6], '+', 'BYLEX', 'LIMIT', 0, BATCH_SIZE)
  for _, request in ipairs(waiting) do
    look(request)
  end
  last = #waiting == BATCH_SIZE and waiting[BATCH_SIZE] or ''
else
  local page = call('ZSCAN', DELAYED, ARGV[6] == '' and '0' or ARGV[6], 'COUNT', BATCH_SIZE)
  for i = 1, #page[2], 2 do
    look(page[2][i])
  end
  last = page[1] == '0' and '' or page[1]
end
return {last, found}
