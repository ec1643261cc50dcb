-- beat: record that a worker is alive. Returns the time up to which silent workers were seen, then the dead workers. Runs without the prelude.
-- A member of ALIVE is a worker, with the time until which it counts as alive without another heartbeat. A '?' before the name marks
-- a suspect: it was silent for too long, and is dead at that time.
-- KEYS: 1 JOB, 2 ALIVE. ARGV: 1 generation, 2 time ('': that of the server), 3 worker,
--       4 seconds until a silent worker is suspected, 5 seconds until a suspect is dead, 6 time of the last call, or '-inf'
local call, ALIVE = redis.call, KEYS[2]
local MOST = 100
if call('HGET', KEYS[1], 'generation') ~= ARGV[1] then
  return redis.error_reply('GONE the job is not the one that was opened')
end
local now = tonumber(ARGV[2])
if not now then
  local time = call('TIME')
  now = time[1] + time[2] / 1000000
end
local function text(number)
  return string.format('%.17g', number)
end

call('ZREM', ALIVE, '?' .. ARGV[3]) -- first: a server without free memory refuses a script that begins with ZADD
call('ZADD', ALIVE, text(now + ARGV[4]), ARGV[3])
local silent = call('ZRANGE', ALIVE, ARGV[6], text(now), 'BYSCORE', 'LIMIT', 0, MOST)
local reply, next_look = {#silent < MOST and text(now) or ARGV[6]}, text(now + ARGV[5])
for _, name in ipairs(silent) do
  if string.sub(name, 1, 1) == '?' then
    reply[#reply + 1] = string.sub(name, 2)
    call('ZADD', ALIVE, next_look, name) -- the caller may die before it has reclaimed the leases
  else
    call('ZREM', ALIVE, name)
    call('ZADD', ALIVE, next_look, '?' .. name)
  end
end
return reply
