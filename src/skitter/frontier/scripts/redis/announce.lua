-- announce: list a worker with its statistics for some seconds; 0: the worker has left, and its claim of the seeds ends.
-- Format of a worker: time of the report(8, double) until(8, double) report.
-- ARGV: 5 worker, 6 report, 7 seconds
begin(false)
if tonumber(ARGV[7]) > 0 then
  call('HSET', WORKERS, ARGV[5], pack('<dd', now, now + ARGV[7]) .. ARGV[6])
else
  if call('HGET', JOB, 'seed_worker') == ARGV[5] then
    call('HDEL', JOB, 'seed_token', 'seed_worker', 'seed_deadline')
  end
  call('HDEL', WORKERS, ARGV[5])
  call('ZREM', ALIVE, ARGV[5], '?' .. ARGV[5])
end
return 1
