-- outbox: return the number of recrawls, and some of the requests for other partitions that wait in the outbox, ids and
-- values alternately.
-- ARGV: 5 maximum number, 6 minimum age in seconds
local reply = {recrawls}
if call('EXISTS', OUTBOX) == 1 then
  local found = call('HRANDFIELD', OUTBOX, ARGV[5], 'WITHVALUES')
  for i = 1, #found, 2 do
    if struct.unpack('<d', found[i + 1]) <= now - tonumber(ARGV[6]) then
      reply[#reply + 1] = found[i]
      reply[#reply + 1] = sub(found[i + 1], 9)
    end
  end
end
return reply
