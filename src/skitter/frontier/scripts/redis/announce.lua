-- announce: list a worker with its statistics for some seconds; 0: the worker has left.
-- Format of a worker: time of the report(8, double) until(8, double) report.
-- ARGV: 5 worker, 6 report, 7 seconds
begin(false)
if tonumber(ARGV[7]) > 0 then
  call('HSET', WORKERS, ARGV[5], pack('<dd', now, now + ARGV[7]) .. ARGV[6])
else
  remove_worker(ARGV[5])
end
return 1
