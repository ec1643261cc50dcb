-- partition_status: what tells whether a partition is quiet, and what limits are measured by.
-- The sequence grows with every request that is added or given up, the number of those done with every other end, so
-- that a partition that was quiet, was not, and is again, has another pulse.
local job = call('HMGET', JOB, 'seeds_done', 'state', 'sequence', 'done')
local amounts = call('HMGET', COUNTERS, 'pages', 'items', 'bytes')
local waits = has_seeds_outside() or is_waiting()
return {
  call('ZCARD', QUEUE), call('ZCARD', DELAYED), call('HLEN', LEASES), call('HLEN', OUTBOX), waits and 1 or 0,
  job[1], job[2], job[3], job[4], call('ZCARD', DEAD), amounts[1] or '0', amounts[2] or '0', amounts[3] or '0',
  meta[6],
}
