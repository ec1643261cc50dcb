-- follow_recrawl: forget the known fingerprints if the first partition was recrawled since. Idempotent.
-- ARGV[5]: number of recrawls
begin(false)
if tonumber(call('HGET', JOB, 'recrawls') or 0) < tonumber(ARGV[5]) then
  if not config.visited_ttl then
    forget_all()
  end
  if config.remembers then
    call('UNLINK', OUTPUTS)
  end
  call('HSET', JOB, 'recrawls', ARGV[5])
end
return 1
