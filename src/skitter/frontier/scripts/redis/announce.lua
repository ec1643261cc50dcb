-- announce: believe that a worker is there, for some seconds; 0: it has left.
-- A worker is: heard(8, double) until(8, double) report.
-- ARGV: 5 worker, 6 report, 7 seconds
begin(false)
if tonumber(ARGV[7]) > 0 then
  call('HSET', WORKERS, ARGV[5], pack('<dd', now, now + ARGV[7]) .. ARGV[6])
else
  call('HDEL', WORKERS, ARGV[5])
end
return 1
