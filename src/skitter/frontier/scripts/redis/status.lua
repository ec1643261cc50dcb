-- status: read all counts at one moment.
begin(false)
local more = queue_due()
finish('')
local state, limit = current_state()
local job = call('HMGET', JOB, 'done', 'seeds_done')
local _, oldest = first_of(GRANTED, 'granted')
local _, due = first_of(DELAYED, 'delayed')
keep_floors()
local busiest = {}
for i, name in ipairs(call('ZRANGE', BUSY, 0, 19, 'REV')) do
  busiest[i] = status_of(name)
end
local fetchable = call('ZCOUNT', READY, '-inf', text(now)) -- slots from which any worker may lease now
for queue in string.gmatch('default' .. (queues or ''), '[^,]+') do
  fetchable = fetchable + call('ZLEXCOUNT', READY_BY_QUEUE, '[' .. queue .. '\0', '(' .. queue .. '\0' .. pack('>d', now))
end
local queued = {} -- in each queue, if there was ever another one than the default one
if queues then
  local others = 0
  for queue in string.gmatch(queues, '[^,]+') do
    local waiting = call('ZLEXCOUNT', QUEUE, '[' .. queue .. '|', '(' .. queue .. '}')
    others = others + waiting
    queued[#queued + 1] = {queue, waiting}
  end
  table.insert(queued, 1, {'default', call('ZCARD', QUEUE) - others})
end
return {
  state, limit, text(now), call('ZCARD', QUEUE), call('ZCARD', DELAYED), call('HLEN', LEASES), job[1],
  call('ZCARD', DEAD), job[2], call('ZCARD', BUSY), oldest or '', more and 1 or 0,
  call('HGETALL', COUNTERS), busiest, queued, fetchable, due or '', recrawls + 1,
}
