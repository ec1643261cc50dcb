-- renew: extend the leases that a worker holds, and its claim on the seeds. Returns the ids that it does not hold.
-- ARGV: 5 worker, 6 ids
begin(false)
local is_behind = queue_due()
local gone = {}
local deadline = now + config.lease_seconds
for _, id in ipairs(decode(ARGV[6])) do
  local lease = lease_of(id)
  local has_it = lease and lease.worker == ARGV[5]
  if has_it and is_behind then
    has_it = tonumber(call('ZSCORE', DEADLINES, id)) > now
  end
  if has_it then
    record_member('deadlines', deadline)
    call('ZADD', DEADLINES, deadline, id)
  else
    gone[#gone + 1] = id
  end
end
if call('HGET', JOB, 'seed_worker') == ARGV[5] then
  call('HSET', JOB, 'seed_deadline', text(deadline))
end
finish('')
return gone
