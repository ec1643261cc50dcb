-- find_requests: look through some of what waits for requests that hold a trace. Returns where to go on ('' when through) and them.
-- ARGV: 5 'queue' or 'delayed', 6 place ('' to begin), 7 trace
local found, last = {}, ''
local function look(request)
  if string.find(request, ARGV[7], 1, true) then
    found[#found + 1] = request
  end
end
if ARGV[5] == 'queue' then
  local waiting = call('ZRANGE', QUEUE, ARGV[6] == '' and '-' or '(' .. ARGV[6], '+', 'BYLEX', 'LIMIT', 0, AT_ONCE)
  for _, request in ipairs(waiting) do
    look(request)
  end
  last = #waiting == AT_ONCE and waiting[AT_ONCE] or ''
else
  local page = call('ZSCAN', DELAYED, ARGV[6] == '' and '0' or ARGV[6], 'COUNT', AT_ONCE)
  for i = 1, #page[2], 2 do
    look(page[2][i])
  end
  last = page[1] == '0' and '' or page[1]
end
return {last, found}
