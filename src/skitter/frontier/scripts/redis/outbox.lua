-- outbox: some of the requests that wait for their delivery to other partitions, each id and value.
-- ARGV: 5 how many, 6 seconds for which they must have waited
local answer = {}
if call('EXISTS', OUTBOX) == 1 then
  local found = call('HRANDFIELD', OUTBOX, ARGV[5], 'WITHVALUES')
  for i = 1, #found, 2 do
    if struct.unpack('<d', found[i + 1]) <= now - tonumber(ARGV[6]) then
      answer[#answer + 1] = found[i]
      answer[#answer + 1] = sub(found[i + 1], 9)
    end
  end
end
return answer
