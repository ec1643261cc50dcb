-- claim_seeds: claim the loading of the seeds. Returns the position and the number of recrawls, or nothing if the claim is
-- refused.
-- ARGV: 5 worker, 6 token
begin(false)
local claim = call('HMGET', JOB, 'seed_token', 'seed_deadline', 'seed_position')
local is_free = not claim[1] or tonumber(claim[2]) <= now or claim[1] == ARGV[6]
if meta[5] == '1' or not is_free then
  return false
end
call('HSET', JOB, 'seed_token', ARGV[6], 'seed_worker', ARGV[5], 'seed_deadline',
  text(now + config.lease_seconds))
return {claim[3], recrawls}
