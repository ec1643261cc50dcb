-- recrawl: start a finished job again. Returns the number of recrawls, or 0 if the job is not finished.
-- ARGV[5]: number of recrawls of the other partitions. It is higher than the number of this partition if a failover has
-- undone a recrawl that they followed. The next number must be higher than theirs, or they would not follow it.
begin(false)
if current_state() ~= 'finished' then
  return finish('0')
end
if not config.visited_ttl then
  forget_all()
end
if config.remembers then
  call('UNLINK', OUTPUTS)
end
call('HSET', JOB, 'seeds_done', '0', 'seed_position', '0')
recrawls = math.max(recrawls, tonumber(ARGV[5])) + 1
set_in_job('recrawls', text(recrawls))
call('HINCRBY', JOB, 'revision', 1) -- so that workers that are still running clear their caches of known links
return finish(text(recrawls))
