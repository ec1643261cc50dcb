-- partition_status: return the counts that show whether a partition is quiet, and those that have limits.
-- The sequence grows with every request that is added or marked dead, the number of done requests with every other end. So
-- a partition that was quiet, was not, and is quiet again, returns another pair of them.
local job = call('HMGET', JOB, 'seeds_done', 'state', 'sequence', 'done')
local amounts = call('HMGET', COUNTERS, 'pages', 'items', 'bytes')
local waits = has_external_seeds() or is_waiting()
return {
  call('ZCARD', QUEUE), call('ZCARD', DELAYED), call('HLEN', LEASES), call('HLEN', OUTBOX), waits and 1 or 0,
  job[1], job[2], job[3], job[4], call('ZCARD', DEAD), amounts[1] or '0', amounts[2] or '0', amounts[3] or '0',
  meta[6],
}
