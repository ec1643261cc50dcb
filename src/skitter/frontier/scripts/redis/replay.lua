-- replay: put dead letters back in the queue with fresh attempts. Returns how many.
-- ARGV: 5 numbers, or '' for all up to the number that is 6
begin(true)
local requests = exhume(ARGV[5] ~= '' and decode(ARGV[5]), tonumber(ARGV[6]))
for _, request in ipairs(requests) do
  local name, key, rest = split(request)
  if byte(rest, 5) == 1 and not is_banned(name) then
    if config.visited_ttl then
      call('ZADD', SEEN, 'inf', sub(rest, 6, 21))
    else
      learn(sub(rest, 6, 21))
    end
  end
  place_again(name, key, pack('>I2I2', 0, 0) .. sub(rest, 5), now)
end
return finish(tostring(#requests))
