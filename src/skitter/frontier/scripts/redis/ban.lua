-- ban: refuse all requests for a slot, or accept them again. Returns whether that is a change.
-- ARGV: 5 slot, 6 '1' or '0'
begin(false)
local is_new = call(ARGV[6] == '1' and 'SADD' or 'SREM', BANNED, ARGV[5])
call('HSET', JOB, 'bans', call('SCARD', BANNED))
if ARGV[6] == '0' and is_new == 1 then
  call('HINCRBY', JOB, 'revision', 1) -- so that workers clear their caches of known links
end
return finish(tostring(is_new))
