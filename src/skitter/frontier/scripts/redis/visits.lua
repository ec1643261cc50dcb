-- visits: return the next cursor, and some of the valid visits: fingerprint and visit alternately, without the memory.
-- ARGV: 5 cursor, 6 number to look at
local page = call('HSCAN', VISITS, ARGV[5], 'COUNT', ARGV[6])
local reply = {page[1]}
for i = 1, #page[2], 2 do
  local visit = page[2][i + 1]
  if is_valid(visit) then
    reply[#reply + 1] = page[2][i]
    reply[#reply + 1] = sub(visit, 1, 15 + struct.unpack('>I4', visit, 12))
  end
end
return reply
