-- recrawl: start a finished job again. Returns the number of recrawls, or 0 if the job is not finished.
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
recrawls = recrawls + 1
set_in_job('recrawls', text(recrawls))
return finish(text(recrawls))
