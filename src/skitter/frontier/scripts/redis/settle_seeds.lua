-- settle_seeds: turn elements that were taken into requests and dead letters. Returns 1, or 0 if another has them.
-- ARGV: 5 token, 6 names, entries, rejected (entry, error), parcels
begin(true)
if call('HDEL', CLAIMED, ARGV[5]) == 0 then
  return finish('0')
end
local names, entries, rejected, parcels = unpack(decode(ARGV[6]))
insert(names, entries)
post(parcels)
for _, one in ipairs(rejected) do
  local entry = one[1]
  local rank = entry[2] ~= '' and entry[2] or pack('>I8', 0)
  bury(names[entry[1]][1], rank .. next_number(), entry[3], one[2])
  count('failed/seed', 1)
end
return finish('1')
