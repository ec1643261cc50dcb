-- recall: return what is remembered of some pages, '' for others.
-- ARGV[5]: fingerprints, concatenated
local wanted, reply = {}, {}
for at = 1, #ARGV[5], 16 do
  wanted[#wanted + 1] = sub(ARGV[5], at, at + 15)
end
for i, visit in ipairs(call('HMGET', VISITS, unpack(wanted))) do
  local is_known = visit and is_valid(visit) and byte(visit, 5) ~= GONE
  reply[i] = is_known and sub(visit, 16 + struct.unpack('>I4', visit, 12)) or ''
end
return reply
