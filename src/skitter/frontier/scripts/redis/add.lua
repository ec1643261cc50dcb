-- add: add requests, and store the progress of the seeds if the requests are seeds.
-- ARGV: 5 names, entries, seeds (token, position before, position after, whether all are loaded, outbox,
--       counters to add), 6 see report(), 7 number of recrawls to follow, see follow_recrawl()
-- Returns the numbers of new, known, refused (banned) requests, whether the seeds were accepted, and the number of requests that
-- a budget refuses.
begin(true)
follow_recrawl(tonumber(ARGV[7]))
local names, entries, seeds = unpack(decode(ARGV[5]))
if seeds then
  local claim = call('HMGET', JOB, 'seed_token', 'seed_position')
  if claim[1] ~= seeds[1] then
    return finish('0 ' .. #entries .. ' 0 0 0')
  elseif seeds[2] and tonumber(claim[2]) ~= seeds[2] then
    -- The server has lost earlier seeds: a loader has to continue from the stored position.
    call('HDEL', JOB, 'seed_token', 'seed_worker', 'seed_deadline')
    return finish('0 ' .. #entries .. ' 0 0 0')
  end
  call('HSET', JOB, 'seed_position', text(seeds[3]), 'seed_deadline', text(now + config.lease_seconds),
    'seeds_done', seeds[4] and '1' or '0')
  if seeds[4] then
    call('HDEL', JOB, 'seed_token', 'seed_worker', 'seed_deadline')
  end
  put_outbox(seeds[5])
  for counter, amount in pairs(seeds[6]) do
    count(counter, amount)
  end
end
local added, refused, over = insert(names, entries)
return finish(table.concat({added, #entries - added - refused - over, refused, 1, over}, ' ') .. report())
