-- follow_recrawl: follow the first partition when the job was begun again. Does nothing the second time.
-- ARGV[5]: how often it was
begin(false)
if tonumber(call('HGET', JOB, 'recrawls') or 0) < tonumber(ARGV[5]) then
  if not config.visited_ttl then
    forget_all()
  end
  call('HSET', JOB, 'recrawls', ARGV[5])
end
return 1
