-- add: add requests, with the progress of the seeds if they are some.
-- ARGV: 5 names, entries, seeds (token, position before, position after, whether it is done, parcels), 6 see told()
-- Returns how many were new, how many known, how many refused, and whether the seeds were taken.
begin(true)
local names, entries, seeds = unpack(decode(ARGV[5]))
if seeds then
  local claim = call('HMGET', JOB, 'seed_token', 'seed_position')
  if claim[1] ~= seeds[1] then
    return finish('0 ' .. #entries .. ' 0 0')
  elseif seeds[2] and tonumber(claim[2]) ~= seeds[2] then
    -- The server has lost what it took before: the loader has to begin again where the job is now.
    call('HDEL', JOB, 'seed_token', 'seed_worker', 'seed_deadline')
    return finish('0 ' .. #entries .. ' 0 0')
  end
  call('HSET', JOB, 'seed_position', text(seeds[3]), 'seed_deadline', text(now + config.lease_seconds),
    'seeds_done', seeds[4] and '1' or '0')
  if seeds[4] then
    call('HDEL', JOB, 'seed_token', 'seed_worker', 'seed_deadline')
  end
  post(seeds[5])
end
local added, refused = insert(names, entries)
return finish(added .. ' ' .. #entries - added - refused .. ' ' .. refused .. ' 1' .. told())
