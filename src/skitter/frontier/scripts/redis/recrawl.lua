-- recrawl: begin a finished job again. Returns how often it was, or 0 if it is not finished.
begin(false)
if current_state() ~= 'finished' then
  return finish('0')
end
if not config.visited_ttl then
  forget_all()
end
call('HSET', JOB, 'seeds_done', '0', 'seed_position', '0')
return finish(tostring(call('HINCRBY', JOB, 'recrawls', 1)))
