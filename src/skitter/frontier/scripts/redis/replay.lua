-- replay: put dead letters back in the queue with fresh attempts, except those whose request was added again since.
-- Returns the number of dead letters removed, and the number of requests queued again.
-- ARGV: 5 numbers, or '' for all up to the number in ARGV[6]
begin(true)
local forgotten_to = tonumber(call('HGET', JOB, 'forgotten_to') or 0)
local requests, numbers = take_dead(ARGV[5] ~= '' and decode(ARGV[5]), tonumber(ARGV[6]))
local replayed = 0
for i, request in ipairs(requests) do
  local name, key, rest = split(request)
  local mark, fingerprint = byte(rest, 5), sub(rest, 6, 21)
  local may_be_added = mark == 2 or (mark == 1 and numbers[i] <= forgotten_to)
  if may_be_added and is_known(fingerprint) then
    count('refused/duplicate', 1)
  else
    replayed = replayed + 1
    if mark ~= 0 and not is_banned(name) then
      if config.visited_ttl then
        call('ZADD', SEEN, 'inf', fingerprint)
      else
        learn(fingerprint)
      end
    end
    enqueue_again(name, key, pack('>I2I2', 0, 0) .. (mark == 0 and '\0' or '\1') .. sub(rest, 6), now)
  end
end
return finish(#requests .. ' ' .. replayed)
